"""Checkpoints are whole or not there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from a2tgpo.errors import CheckpointError
from a2tgpo.files import file_sha256
from a2tgpo.policy import Policy
from a2tgpo.run_folder.checkpoint import (
    checkpoints,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from tests.support.tiny_models import tiny_policy


def save(folder: Path, step: int, keep: int = 2) -> Path:
    policy = tiny_policy(tied=True)
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(float(step))
    return save_checkpoint(folder, step, policy, {"w/exp_avg": torch.ones(3)}, {"note": "x", "best_step": 20}, keep)


def test_round_trip_and_last_n_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000020", "step-000030"]
    loaded = load_checkpoint(checkpoints(tmp_path)[-1])
    assert loaded.step == 30
    assert loaded.state["note"] == "x"
    assert loaded.weights["model.norm.weight"].tolist() == [30.0] * 32
    assert loaded.weights.keys() == tiny_policy(tied=True).model.state_dict().keys()
    assert loaded.optimizer["w/exp_avg"].tolist() == [1.0] * 3


def test_interrupted_write_is_never_taken_for_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (tmp_path / ".partial-000020-1").mkdir()
    (tmp_path / "step-000030").mkdir()  # a folder without its state
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000010"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "config.json"])
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 10)
    data = bytearray((path / name).read_bytes())
    data[-1] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} is missing or differs"):
        load_checkpoint(path)
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing or differs"):
        load_checkpoint(path)


def test_state_names_every_file(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    named = sorted(json.loads((path / "state.json").read_text())["sha256"])
    assert named == sorted(file.name for file in path.iterdir() if file.name != "state.json")
    assert {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json"} <= set(named)


def test_a_checkpoint_is_a_model_folder(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    ids = torch.tensor([[5, 6, 7]])
    theirs = LlamaForCausalLM.from_pretrained(path)
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, Policy.load(path).model(ids).logits)


def test_one_written_before_they_were_model_folders_is_read(tmp_path: Path) -> None:
    path = tmp_path / "step-000007"
    path.mkdir()
    for name, tensors in (("weights", {"w": torch.ones(3)}), ("optimizer", {"w/exp_avg": torch.zeros(3)})):
        save_file(tensors, path / f"{name}.safetensors")
    hashes = {file.name: file_sha256(file) for file in sorted(path.iterdir())}
    (path / "state.json").write_text(json.dumps({"step": 7, "sha256": hashes, "best_step": 7}))
    loaded = load_checkpoint(path)
    assert (loaded.step, loaded.weights["w"].tolist(), loaded.state["best_step"]) == (7, [1.0] * 3, 7)


@pytest.mark.parametrize(
    ("before", "after"),
    [('"step": 10', '"step": 11'), ('"best_step": 20', '"best_step": 21'), ("{", "["), ('"step": 10', '"stop": 10')],
)
def test_a_changed_state_is_found(tmp_path: Path, before: str, after: str) -> None:
    path = save(tmp_path, 10)
    text = (path / "state.json").read_text()
    assert before in text
    (path / "state.json").write_text(text.replace(before, after, 1))
    with pytest.raises(CheckpointError, match=r"state\.json is missing or differs"):
        load_checkpoint(path)


def test_a_byte_that_is_no_text_in_the_state_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    (path / "state.json").write_bytes(b"\xff" + (path / "state.json").read_bytes()[1:])
    with pytest.raises(CheckpointError, match=r"state\.json is missing or differs"):
        load_checkpoint(path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error: disk full")])
def test_a_write_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    before = save(tmp_path / "checkpoints", 10)
    monkeypatch.setattr("a2tgpo.run_folder.checkpoint.save_file", full)
    with pytest.raises(
        CheckpointError, match=rf"could not be written \({re.escape(str(error))}\); free space .* --resume {tmp_path}"
    ):
        save(tmp_path / "checkpoints", 20)
    assert checkpoints(tmp_path / "checkpoints") == [before]
    monkeypatch.undo()
    save(tmp_path / "checkpoints", 20)
    assert not list((tmp_path / "checkpoints").glob(".partial*"))


def test_half_of_an_old_checkpoint_is_cleaned_up_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10)
    monkeypatch.setattr("a2tgpo.run_folder.checkpoint.shutil.rmtree", lambda *_, **__: None)  # interrupted
    save(tmp_path, 20, keep=1)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000020"]
    monkeypatch.undo()
    save(tmp_path, 30, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000030"]


def test_optimizer_state_survives_bit_for_bit() -> None:
    def steps(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(4, 3, generator=generator)).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    first = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(first.parameters(), lr=0.1)
    steps(first, optimizer, 3, seed=1)
    second = torch.nn.Linear(3, 2)
    second.load_state_dict(first.state_dict())
    restored = torch.optim.AdamW(second.parameters(), lr=0.1)
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in first.named_parameters()}
    restore_optimizer(
        restored,
        {parameter: name for name, parameter in second.named_parameters()},
        optimizer_tensors(optimizer, names),
    )
    steps(first, optimizer, 3, seed=2)
    steps(second, restored, 3, seed=2)
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), second.parameters(), strict=True))
