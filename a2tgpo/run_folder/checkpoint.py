"""Checkpoints that are either whole or not there.

A checkpoint is a folder `step-000040` with tensors as safetensors and a `state.json` that holds the SHA-256 of every
other file. It is written under a temporary name, flushed to disk and renamed, so an interrupted write is never taken
for a checkpoint. Nothing is ever unpickled.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from a2tgpo.errors import CheckpointError
from a2tgpo.files import file_sha256, publish

_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was stored after `step` training steps."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
    protected: int = -1,
) -> Path:
    """Write `folder/step-…` atomically and delete all but the `keep` newest checkpoints and that of step
    `protected`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:06d}"
    partial = folder / f".partial-{step:06d}-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, tensors in (("weights", weights), ("optimizer", optimizer)):
        # tied weights share memory, which the format refuses
        copies = {key: value.detach().cpu().clone() for key, value in tensors.items()}
        save_file(copies, partial / f"{name}.safetensors")
    hashes = {file.name: file_sha256(file) for file in sorted(partial.iterdir())}
    (partial / _STATE).write_text(json.dumps({"step": step, "sha256": hashes, **state}, indent=1))
    publish(partial, final)
    for old in checkpoints(folder)[:-keep]:
        if old.name != f"step-{protected:06d}":
            shutil.rmtree(old)
    for leftover in folder.glob(".partial-*"):  # of writes that were interrupted
        shutil.rmtree(leftover)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / _STATE).is_file()) if folder.is_dir() else []


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint after verifying the checksum of every file.

    Raises:
        CheckpointError: if a file is missing or differs from what was written.
    """
    state = json.loads((path / _STATE).read_text())
    for name, expected in state["sha256"].items():
        if not (path / name).is_file() or file_sha256(path / name) != expected:
            raise CheckpointError(
                f"checkpoint {path}: {name} is missing or differs from what was written; delete the folder and resume"
                " from the one before"
            )
    weights, optimizer = (
        load_file(path / f"{name}.safetensors", device=str(device)) for name in ("weights", "optimizer")
    )
    return Checkpoint(state["step"], weights, optimizer, state)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """An optimiser's per-parameter state as named tensors, `parameter/quantity`."""
    return {
        f"{names[parameter]}/{quantity}": value if isinstance(value, Tensor) else torch.tensor(value)
        for parameter, state in optimizer.state.items()
        for quantity, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Inverse of `optimizer_tensors`, into an optimiser over the same parameters."""
    by_name = {name: parameter for parameter, name in names.items()}
    optimizer.state.clear()
    for key, value in tensors.items():
        name, _, quantity = key.rpartition("/")
        parameter = by_name[name]
        # AdamW counts its steps on the CPU, whatever device the parameter is on
        optimizer.state[parameter][quantity] = (
            value.cpu().clone() if value.ndim == 0 else value.to(parameter.device, copy=True)
        )
