"""What a run's folder is compared with before it is continued, and how it is made longer."""

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from a2tgpo.config import EnvironmentSettings, ModelSettings, Recipe, WarmStartSettings
from a2tgpo.errors import CheckpointError, ConfigError
from a2tgpo.run_folder.load import load_run
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.training.loop import train
from tests.support.recipes import small_recipe
from tests.support.tiny_models import tiny_policy

QUESTIONS = [{"id": f"q{row}", "question": f"w{row} w{row + 1}", "answers": [f"w{row}"]} for row in range(9)]
CORPUS = [{"id": f"p{row}", "title": f"w{row}", "text": f"w{row + 1} w{row + 2}"} for row in range(9)]
ALGORITHM = '''
from dataclasses import dataclass
from a2tgpo.algorithms import GRPO

@dataclass(frozen=True, kw_only=True)
class Mine(GRPO):
    """As GRPO."""
'''


class StoppedError(Exception):
    pass


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with all that a run can rest on: questions, corpus, algorithm and model."""
    write_lines(tmp_path / "questions.jsonl", QUESTIONS)
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    (tmp_path / "mine.py").write_text(ALGORITHM)
    tiny_policy().save(tmp_path / "model")
    return tmp_path


def recipe_in(place: Path, steps: int = 3, **changes: Any) -> Recipe:
    base = small_recipe()
    environment = EnvironmentSettings(
        id="a2tgpo/SearchQA-v0",
        dataset=str(place / "questions.jsonl"),
        corpus=str(place / "corpus.jsonl"),
        train_split="all",
        validation_split="all",
        max_turns=2,
    )
    plain = replace(
        base,
        algorithm=f"{place / 'mine.py'}:Mine",
        environment=environment,
        model=ModelSettings(source=str(place / "model")),
        warm_start=WarmStartSettings(enabled=False),
        training=replace(base.training, steps=steps, checkpoint_every=1, evaluate_every=3),
    )
    return replace(plain, **changes)


def begun(place: Path) -> Path:
    """A run that was stopped after its second step."""

    def stop(kind: str, step: int, _values: object) -> None:
        if (kind, step) == ("train", 3):
            raise StoppedError

    with pytest.raises(StoppedError):
        train(recipe_in(place), place / "run", place / "model", stop)
    return place / "run"


def resumed(place: Path, recipe: Recipe | None = None) -> bool:
    return train(recipe or recipe_in(place), place / "run", place / "model", lambda *_: None)


def other_question(place: Path) -> None:
    write_lines(place / "questions.jsonl", [*QUESTIONS[:-1], QUESTIONS[-1] | {"question": "w3 w3"}])


def other_answers(place: Path) -> None:
    write_lines(place / "questions.jsonl", [*QUESTIONS[:-1], QUESTIONS[-1] | {"answers": ["w30"]}])


def other_corpus(place: Path) -> None:
    write_lines(place / "corpus.jsonl", [*CORPUS[:-1], CORPUS[-1] | {"text": "nowhere"}])


def other_algorithm(place: Path) -> None:
    (place / "mine.py").write_text(ALGORITHM + "\n# changed\n")


def other_model(place: Path) -> None:
    tiny_policy(seed=1).save(place / "model")


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (other_question, "questions_sha256.train"),
        (other_answers, "questions_sha256.validation"),
        (other_corpus, "corpus_sha256"),
        (other_algorithm, "algorithm_sha256"),
        (other_model, "model_sha256"),
    ],
)
def test_what_the_numbers_rest_on_may_not_change_unnoticed(
    place: Path, change: Callable[[Path], None], entry: str
) -> None:
    folder = begun(place)
    before = json.loads((folder / "manifest.json").read_text())
    change(place)
    with pytest.raises(ConfigError, match=rf"was begun with .*{entry} .* --allow .*{entry}"):
        resumed(place)
    assert json.loads((folder / "manifest.json").read_text()) == before
    recipe = recipe_in(place)
    allowed = replace(recipe, study=replace(recipe.study, allow=(entry.partition(".")[0],)))
    assert resumed(place, allowed) is True
    after = json.loads((folder / "manifest.json").read_text())
    assert {name: value for name, value in after.items() if name != "parts"} == before
    assert entry in after["parts"]["2"]


def test_other_libraries_and_commits_are_noted(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = begun(place)
    monkeypatch.setattr("a2tgpo.run_folder.manifest._git_commit", lambda: "abc")
    before = json.loads((folder / "manifest.json").read_text())
    with caplog.at_level(logging.WARNING):
        assert resumed(place) is True
    assert "continued at step 2 with other git_commit" in caplog.text
    assert json.loads((folder / "manifest.json").read_text()) == {**before, "parts": {"2": {"git_commit": "abc"}}}


def test_nothing_is_noted_where_nothing_changed(place: Path) -> None:
    folder = begun(place)
    before = (folder / "manifest.json").read_text()
    assert resumed(place) is True
    assert (folder / "manifest.json").read_text() == before


@pytest.mark.parametrize("name", ["config.toml", "manifest.json"])
def test_a_run_without_its_papers_is_not_continued(place: Path, name: str) -> None:
    folder = begun(place)
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=rf"run folder: .*{name}"):
        resumed(place)
    (folder / name).write_text("[1,")
    with pytest.raises(ConfigError, match=r"recipe|run folder"):
        resumed(place)


@pytest.mark.parametrize("emptied", ["{}", "[]", "7", '{"settings": {}, "corpus_sha256": "a", "questions_sha256": {}}'])
def test_an_emptied_manifest_is_not_continued_upon(place: Path, emptied: str) -> None:
    """There would be nothing to compare with."""
    folder = begun(place)
    (folder / "manifest.json").write_text(emptied)
    with pytest.raises(ConfigError, match=r"run folder: .*manifest\.json cannot be read \(.*\), expected the manifest"):
        resumed(place)
    assert (folder / "manifest.json").read_text() == emptied


@pytest.mark.parametrize("harm", ["a digit", "a byte", "a line less"])
def test_metrics_that_were_changed_are_found(place: Path, harm: str) -> None:
    folder = begun(place)
    path = folder / "metrics.jsonl"
    whole = path.read_bytes()
    lines = whole.split(b"\n")
    path.write_bytes(
        {
            "a digit": whole.replace(b'"step": 1', b'"step": 7', 1),
            "a byte": b"\xff" + whole[1:],
            "a line less": b"\n".join(lines[1:]),
        }[harm]
    )
    with pytest.raises(CheckpointError, match=r"checkpoint of step 2: .*metrics\.jsonl differs"):
        resumed(place)
    path.write_bytes(whole + b'{"kind": "tr')
    assert resumed(place) is True
    assert [row["step"] for row in read_metrics(folder)] == [0, 1, 2, 3, 3]


def test_a_bad_metrics_line_is_named(tmp_path: Path) -> None:
    for line in (b"\xff", b"7", b'{"kind": "train"}', b'{"kind": 1, "step": 2}', b"{"):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1}\n' + line + b"\n")
        with pytest.raises(ConfigError, match=r"line 2 of .*metrics\.jsonl is no metrics line"):
            read_metrics(tmp_path)


def test_tensorboard_forgets_what_is_done_again(place: Path) -> None:
    folder = begun(place)
    assert resumed(place) is True
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3]


def test_a_finished_run_can_be_made_longer(place: Path) -> None:
    assert resumed(place) is True
    shutil.copytree(place / "run", place / "kept")
    assert resumed(place, recipe_in(place, steps=5)) is True
    folder = place / "run"
    assert (folder / "finished").exists()
    assert [row["step"] for row in read_metrics(folder, "train")] == [1, 2, 3, 4, 5]
    # the first three steps are those of the shorter run
    for one, other in zip(read_metrics(folder, "train"), read_metrics(place / "kept", "train"), strict=False):
        assert {key: value for key, value in one.items() if value == value} == {
            key: value for key, value in other.items() if value == value
        }
    assert load_run(folder).recipe.training.steps == 5
    assert resumed(place, recipe_in(place, steps=5)) is True


def test_a_run_cannot_be_made_shorter_or_longer_under_a_schedule(place: Path) -> None:
    linear = replace(recipe_in(place).update, schedule="linear")
    assert resumed(place) is True
    with pytest.raises(ConfigError, match=r"training.steps 3 \(now 2\).*longer, but not shorter"):
        resumed(place, recipe_in(place, steps=2))
    shutil.rmtree(place / "run")
    assert resumed(place, recipe_in(place, update=linear)) is True
    with pytest.raises(ConfigError, match=r"training.steps 3 \(now 5\).*only where update.schedule is 'constant'"):
        resumed(place, recipe_in(place, steps=5, update=linear))


def test_any_checkpoint_of_a_run_is_loaded_as_it_was(place: Path) -> None:
    assert resumed(place, recipe_in(place)) is True
    hashes = {which: load_run(place / "run", which).policy.weights_hash() for which in ("last", 2, 3)}
    assert hashes["last"] == hashes[3]
    assert load_run(place / "run", "best").model_folder.name.startswith("step-")
    with pytest.raises(ConfigError, match=r"checkpoint: got 9 for .*steps that it keeps: .*2, 3"):
        load_run(place / "run", 9)
