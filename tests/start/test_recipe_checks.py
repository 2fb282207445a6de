"""What a recipe asks for and is not there: said before anything takes time, and all of it at once."""

import importlib.util
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import a2tgpo.engines.vllm.start
from a2tgpo.config import Recipe, from_dict
from a2tgpo.errors import A2TGPOError, ConfigError
from a2tgpo.start.recipe_checks import check_recipes
from tests.support.byte_models import byte_policy

QUESTIONS = [
    {"id": f"q{n}", "question": f"Who wrote book {n}?", "answer": f"author {n}", "context": [[f"Book {n}", ["By."]]]}
    for n in range(60)
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """A recipe over a question file and a model folder that can be used."""
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    byte_policy().save(tmp_path / "model")
    return {
        "environment": {"id": "a2tgpo/SearchQA-v0", "dataset": str(tmp_path / "q.jsonl"), "protocol": "tags"},
        "model": {"source": str(tmp_path / "model")},
        "warm_start": {"enabled": False},
        "rollout": {"questions": 4},
    }


def refused(data: dict[str, Any], *changes: tuple[str, object]) -> str:
    for name, value in changes:
        section, dot, setting = name.partition(".")
        data = {**data, section: {**data.get(section, {}), setting: value} if dot else value}
    with pytest.raises(A2TGPOError) as found:
        check_recipes([from_dict(Recipe, data)])
    return str(found.value)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_what_can_be_used_passes(files: dict[str, Any]) -> None:
    recipe = from_dict(Recipe, files)
    assert [env.num_envs for env in check_recipes([recipe, replace(recipe, seed=1)])] == [1, 1]  # once for both
    assert len(check_recipes([from_dict(Recipe, {"environment": {"worlds": 2}})])) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("algorithm", "grpp"), r"algorithm: got 'grpp'"),
        (("algorithm_options", {"game": 1}), "unknown parameter 'game'"),
        (("model.device", "tpu"), "device: got 'tpu', expected 'cpu', 'cuda'"),
        (
            ("model.source", "tny"),
            "model.source: got 'tny', expected tiny, smollm2 or the folder of a model; did you",
        ),
        (("model.source", "."), "has no config.json"),
        (
            ("model.chat_template", True),
            "model.chat_template: got true, but the model's tokenizer has no",
        ),
        (("warm_start.enabled", True), "only 'a2tgpo/Almanac-v0' has a scripted expert; set it to false"),
        (("environment.id", "a2tgpo/SaerchQA-v0"), "did you mean 'a2tgpo/SearchQA-v0'?"),
        (("environment.id", "CartPole-v1"), "environment.id: got 'CartPole-v1'"),
        (("environment.dataset", "nowhere.jsonl"), "dataset: got 'nowhere.jsonl'"),
        (("environment.corpus", "nowhere"), "nowhere: no such file"),
        (("environment.aliases", "nowhere.json"), "nowhere.json"),
        (("environment.train_split", "trainn"), "split: got 'trainn'"),
        (("environment.retriever", "bn25"), "retriever: got 'bn25'"),
        (("environment.retriever", f"http://127.0.0.1:{free_port()}"), "does not answer"),
        (("environment.protocol", "tgas"), "protocol: got 'tgas'"),
        (("environment.reward", "emm"), "reward: got 'emm'"),
        (("environment.top_k", 1000), "top_k: got 1000, expected at most the"),
        (("environment.question_field", "nothing"), "nothing"),
        (("rollout.questions", 500), "rollout.questions: got 500, but the split has only"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_part_is_checked(files: dict[str, Any], change: tuple[str, object], message: str) -> None:
    assert message in refused(files, change)


def test_questions_of_both_splits_are_refused_unless_allowed(files: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for name, rows in (("train", QUESTIONS[:50]), ("dev", QUESTIONS[48:])):
        renamed = [{**row, "id": f"{name}-{row['id']}", "question": str(row["question"]).upper()} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
    change = ("environment.dataset", str(folder))
    message = refused(files, change)
    assert "questions: 2 of the split 'validation' are also in the training split" in message
    assert "environment.allow_overlap" in message
    data = {**files, "environment": {**files["environment"], "dataset": str(folder), "allow_overlap": True}}
    assert len(check_recipes([from_dict(Recipe, data)])) == 2


def test_the_expert_reads_the_passages_of_its_own_worlds() -> None:
    """A server has other passages, or the same ids of other worlds."""
    message = refused({"environment": {"worlds": 2}}, ("environment.retriever", "http://127.0.0.1:1"))
    assert "environment.retriever: got 'http://127.0.0.1:1' with warm_start.enabled" in message


def test_a_tokenizer_that_cannot_be_read(files: dict[str, Any]) -> None:
    (Path(files["model"]["source"]) / "tokenizer.json").write_text("{")
    assert "cannot be read" in refused(files)


def test_a_device_and_an_engine_that_are_not_there(files: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "device: got 'cuda:1', but this machine shows torch 1 CUDA devices" in refused(
        files, ("model.device", "cuda:1")
    )
    monkeypatch.setattr(a2tgpo.engines.vllm.start, "_installed", lambda name: False)
    assert "model.engine: got 'vllm', but vLLM is not installed" in refused(files, ("model.engine", "vllm"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("warm_start.enabled", False),
            "warm_start.enabled: got false with model.source 'tiny', which knows",
        ),
        (("environment.worlds", 1), "whose vocabulary holds the names of drawn worlds only"),
        (
            ("model.options", {"layer": 2}),
            "model.options: got 'layer', expected some of layers, width, heads",
        ),
        (("model.options", {"layers": 0}), "model.options.layers: got 0, expected a whole number of at least 1"),
        (("model.options", {"width": 6.5}), "model.options.width: got 6.5, expected a whole number"),
        (("model.options", {"heads": 3}), "expected a width that divides into heads of even size"),
        (("model.chat_template", True), "the model's tokenizer has no chat template"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_embedded_model_is_checked(change: tuple[str, object], message: str) -> None:
    assert message in refused({"environment": {"worlds": 2}}, change)


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = refused({"environment": {"worlds": 2}}, ("model.source", "smollm2"))
    assert "model.source: got 'smollm2', but its weights are not installed" in message


def test_everything_that_is_wrong_is_said_at_once(files: dict[str, Any]) -> None:
    message = refused(
        files,
        ("algorithm", "grpp"),
        ("model.device", "tpu"),
        ("environment.dataset", "nowhere.jsonl"),
        ("warm_start.enabled", True),
    )
    assert message.startswith("recipe: got 4 settings that cannot be used:\n")
    for part in ("'grpp'", "'tpu'", "'nowhere.jsonl'", "scripted expert"):
        assert part in message


def test_recipes_of_a_study_are_checked_together() -> None:
    small = from_dict(Recipe, {"environment": {"worlds": 2}})
    recipes = [replace(small, algorithm=name) for name in ("grpp", "rlo", "grpp", "grpo")]
    with pytest.raises(ConfigError, match=r"(?s)recipe: got 2 settings.*'grpp'.*'rlo'"):
        check_recipes(recipes)
