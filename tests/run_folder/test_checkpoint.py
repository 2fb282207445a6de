"""Checkpoints are whole or not there."""

import json
from pathlib import Path

import pytest
import torch

from a2tgpo.errors import CheckpointError
from a2tgpo.run_folder.checkpoint import (
    checkpoints,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return save_checkpoint(
        folder, step, {"w": torch.full((3,), float(step))}, {"w/exp_avg": torch.ones(3)}, {"note": "x"}, keep
    )


def test_round_trip_and_last_n_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000020", "step-000030"]
    loaded = load_checkpoint(checkpoints(tmp_path)[-1])
    assert loaded.step == 30
    assert loaded.state["note"] == "x"
    assert loaded.weights["w"].tolist() == [30.0] * 3
    assert loaded.optimizer["w/exp_avg"].tolist() == [1.0] * 3


def test_interrupted_write_is_never_taken_for_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (tmp_path / ".partial-000020-1").mkdir()
    (tmp_path / "step-000030").mkdir()  # a folder without its state
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000010"]


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors"])
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
    assert sorted(json.loads((path / "state.json").read_text())["sha256"]) == [
        "optimizer.safetensors",
        "weights.safetensors",
    ]


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
