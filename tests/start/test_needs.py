"""What `--dry-run` says that a run needs, by the arithmetic of docs/gpu.md and the paper's own seconds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from a2tgpo.cli import main
from a2tgpo.config import load_recipe
from a2tgpo.start.needs import needs_of, shape_of


def line(lines: list[str], start: str) -> str:
    [found] = [text for text in lines if text.startswith(start)]
    return found


def test_memory_and_time_of_the_papers_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """4.02 B parameters: 12 bytes each = 48 GB, 18 = 72 and 36 · 2,560 · 4 · 8,192 = 3 and 3 GB = 78; vLLM 8 + 17. A
    step has 525 s on 8 GPUs: 240 steps are 280 hours.
    """
    monkeypatch.setenv("A2TGPO_DATA", str(tmp_path))
    found = needs_of(load_recipe("paper-multihop-4b"), contenders=6)
    memory = line(found, "memory per GPU")
    assert memory.startswith("memory per GPU: 78 GB: 12 bytes a parameter at rest (48), 18 and ")
    assert "in the update (78), vLLM's weights and cache (25)" in memory
    assert "(kl) needs 16 GB more" in memory
    assert line(found, "time").startswith("time: about 280 GPU-hours of an H20 a run")
    assert line(found, "the study") == "the study: 18 runs, about 5,040 GPU-hours"
    assert "hotpotqa: missing: put its files for train and validation into $A2TGPO_DATA/hotpotqa" in line(found, "data")
    assert "http://127.0.0.1:8000" in line(found, "index")


def test_what_fits_nowhere_is_said() -> None:
    assert not [text for text in needs_of(load_recipe("paper-multihop-4b")) if text.startswith("no GPU")]
    assert line(needs_of(load_recipe("paper-singlehop-8b")), "memory").startswith("memory per GPU: 155 GB")
    assert line(needs_of(load_recipe("paper-singlehop-8b")), "no GPU of 141 GB")
    two = load_recipe("paper-multihop-8b")
    two = replace(two, model=replace(two.model, device="cuda:1"))
    assert line(needs_of(two), "memory").startswith("memory: 34 GB on the first GPU, 155 GB on the second")


def test_data_that_is_there_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "nq"
    folder.mkdir()
    (folder / "train.jsonl").write_text("{}\n")
    monkeypatch.setenv("A2TGPO_DATA", str(tmp_path))
    recipe = load_recipe("paper-singlehop-4b")
    assert "missing" in line(needs_of(recipe), "data")  # one split of two
    (folder / "dev.jsonl").write_text("{}\n")
    assert line(needs_of(recipe), "data") == f"data: nq: found in {folder}"


def test_a_models_size_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "hidden_size": 8}')
    save_file({"a": torch.zeros(3, 8), "b": torch.zeros(5)}, tmp_path / "model-1.safetensors")
    save_file({"c": torch.zeros(2)}, tmp_path / "model-2.safetensors")
    shape = shape_of(str(tmp_path))
    assert shape is not None
    assert (shape.parameters, shape.layers, shape.width) == (31, 2, 8)
    assert shape_of("nowhere/Nothing-4B") is None
    assert shape_of("/models/Qwen3-4B") is not None  # known by name


@pytest.mark.parametrize("words", [["train", "quickstart"], ["compare", "paper-singlehop-7b"]])
def test_the_command_prints_them_below_the_recipe(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    assert main([*words, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["name"] == words[1]
    assert [text for text in text.splitlines() if text.startswith("# ")]
