"""Checkpoints that are either whole or not there.

A checkpoint is a folder `step-000040`: a model folder as transformers writes and reads it, with the optimiser's state
as `optimizer.safetensors` and a `state.json` that holds the SHA-256 of every other file and of itself. It is written
under a temporary name, flushed to disk and renamed, so an interrupted write is never taken for a checkpoint. Nothing is
ever unpickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from a2tgpo.errors import CheckpointError
from a2tgpo.files import file_sha256, publish
from a2tgpo.policy import Policy

_STATE, _OPTIMIZER, _OLD_WEIGHTS = "state.json", "optimizer.safetensors", "weights.safetensors"


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
    policy: Policy,
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
    protected: int = -1,
) -> Path:
    """Write `folder/step-…` atomically and delete all but the `keep` newest checkpoints and that of step
    `protected`.

    Raises:
        CheckpointError: if it cannot be written; what was there before is whole.
    """
    final = folder / f"step-{step:06d}"
    partial = folder / f".partial-{step:06d}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        policy.save(partial)
        save_file({key: value.detach().cpu().clone() for key, value in optimizer.items()}, partial / _OPTIMIZER)
        hashes = {file.name: file_sha256(file) for file in sorted(partial.iterdir())}
        content = {"step": step, "sha256": hashes, **state}
        (partial / _STATE).write_text(json.dumps(content | {"checksum": _checksum(content)}, indent=1))
        publish(partial, final)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"checkpoint: {final} could not be written ({error}); free space or fix the folder's permissions, then"
            f" continue from the checkpoint before with a2tgpo train --resume {folder.parent}"
        ) from error
    _prune(folder, keep, f"step-{protected:06d}")
    return final


def _prune(folder: Path, keep: int, protected: str) -> None:
    """Delete what is not kept. An old checkpoint first loses its name, so that half of one is never taken for whole,
    and what an interruption left of it is deleted here the next time.
    """
    for old in checkpoints(folder)[:-keep]:
        if old.name != protected:
            old.rename(folder / f".partial-old-{old.name}")
    for leftover in folder.glob(".partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / _STATE).is_file()) if folder.is_dir() else []


def best_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the best held-out outcome so far; None before there is one.

    Raises:
        CheckpointError: if the newest checkpoint is damaged.
    """
    saved = checkpoints(folder)
    best = folder / f"step-{read_state(saved[-1])['best_step']:06d}" if saved else None
    return best if best in saved else None


def is_model(path: Path) -> bool:
    """Is the checkpoint a model folder? Those written before version 0.1 hold weights only."""
    return not (path / _OLD_WEIGHTS).is_file()


def read_state(path: Path) -> dict[str, Any]:
    """What `state.json` says, verified against its own checksum.

    Raises:
        CheckpointError: if it is not what was written.
    """
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        content = {name: value for name, value in state.items() if name != "checksum"}
        whole = isinstance(state["step"], int) and state.get("checksum", _checksum(content)) == _checksum(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise _damaged(path, _STATE)
    return content


def verified_state(path: Path) -> dict[str, Any]:
    """What `state.json` says, after verifying the checksum of every file.

    Raises:
        CheckpointError: if a file is missing or differs from what was written.
    """
    state = read_state(path)
    for name, expected in state["sha256"].items():
        if not (path / name).is_file() or file_sha256(path / name) != expected:
            raise _damaged(path, name)
    return state


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, to the CPU; raises as `verified_state`."""
    state = verified_state(path)
    weights = Policy.load(path).model.state_dict() if is_model(path) else load_file(path / _OLD_WEIGHTS)
    return Checkpoint(state["step"], weights, load_file(path / _OPTIMIZER), state)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, name: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path}: {name} is missing or differs from what was written; delete the folder and resume from the"
        " checkpoint before it"
    )


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
