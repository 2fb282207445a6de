"""A run's checkpoints as model folders."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from a2tgpo.cli import main
from a2tgpo.config import to_toml
from a2tgpo.run_folder.checkpoint import save_checkpoint
from tests.support.command_line import error_of
from tests.support.recipes import small_recipe
from tests.support.tiny_models import tiny_policy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three checkpoints, of which the second is the best."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(small_recipe()))
    for step in (1, 2, 3):
        save_checkpoint(folder / "checkpoints", step, tiny_policy(seed=step), {}, {"best_step": 2}, keep=9)
    return folder


@pytest.mark.parametrize(("checkpoint", "step"), [("best", 2), ("last", 3), ("1", 1)])
def test_transformers_reads_what_was_exported(run: Path, tmp_path: Path, checkpoint: str, step: int) -> None:
    out = tmp_path / "out"
    assert main(["export", str(run), "--checkpoint", checkpoint, "-o", str(out)]) == 0
    ids = AutoTokenizer.from_pretrained(out)("w1 w2 w3", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert torch.equal(
            AutoModelForCausalLM.from_pretrained(out)(ids).logits, tiny_policy(seed=step).model(ids).logits
        )
    assert "transformers_version" in json.loads((out / "config.json").read_text())


def test_what_is_not_there_is_not_exported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert "got 'newest', expected 'last', 'best' or the number of a step" in error_of(
        capsys, "export", str(run), "--checkpoint", "newest", "-o", out
    )
    assert "steps that it keeps: 1, 2, 3" in error_of(capsys, "export", str(run), "--checkpoint", "4", "-o", out)
    assert "which has no config.toml" in error_of(capsys, "export", str(tmp_path), "-o", out)
    assert "exists already" in error_of(capsys, "export", str(run), "-o", str(run))
