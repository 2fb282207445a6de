"""A run that is killed at any moment and started again ends exactly as one that nobody disturbed.

The child is forked, so that it needs no start-up time, and kills itself with SIGKILL at its N-th event. Events are what
a run does to the world and the steps in between: file writes, flushes and renames (checkpoints, cached warm start,
metrics), optimiser steps of warm start and training, rollout turns, evaluations.
"""

import hashlib
import json
import os
import pkgutil
import random
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from rich.console import Console

from a2tgpo.run_folder.log import read_metrics
from a2tgpo.start.prepare import prepare_model
from a2tgpo.training.loop import train
from tests.support.recipes import small_recipe

EVENTS = (
    "os.fsync",
    "pathlib.Path.rename",
    "pathlib.Path.replace",
    "pathlib.Path.write_text",
    "pathlib.Path.mkdir",
    "a2tgpo.run_folder.checkpoint.save_file",
    "a2tgpo.run_folder.log.RunLog.metrics",
    "a2tgpo.engines.transformers.TransformersEngine.collect",
    "torch.optim.AdamW.step",
    "a2tgpo.training.run.score_batch",
    "a2tgpo.training.run.evaluate",
    "a2tgpo.policy.Policy.save",
)


def play(runs: Path) -> None:
    model = prepare_model(small_recipe(), runs, Console(quiet=True))
    train(small_recipe(), runs / "kill" / "run", model, lambda _kind, _step, _values: None)


@contextmanager
def counting(kill_at: int, after: bool) -> Iterator[list[int]]:
    """Count events; at number `kill_at` the process dies, before or after the event."""
    count = [0]

    def counted(original: Any) -> Any:
        def event(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            dies = count[0] == kill_at
            if dies and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return event

    patches = []
    for name in EVENTS:
        owner, _, attribute = name.rpartition(".")
        target = pkgutil.resolve_name(owner)
        patches.append(mock.patch.object(target, attribute, counted(getattr(target, attribute))))
    for patch in patches:
        patch.start()
    try:
        yield count
    finally:
        for patch in patches:
            patch.stop()


def in_child(runs: Path, kill_at: int = 0, after: bool = False) -> tuple[int, int]:
    """(signal that ended the child or 0, events counted)."""
    counts = runs / "events"
    runs.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            with counting(kill_at, after) as count:
                play(runs)
            counts.write_text(str(count[0]))
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed"
    return (os.WTERMSIG(status), 0) if os.WIFSIGNALED(status) else (0, int(counts.read_text()))


def outcome(runs: Path) -> dict[str, Any]:
    """Everything that must be equal: weights, optimiser state, metrics without the clock, episodes."""
    folder = runs / "kill" / "run"
    clock = ("seconds_", "probe_time")
    clockless = [
        {key: value for key, value in row.items() if not key.startswith(clock) and value == value}
        for row in read_metrics(folder)
    ]
    files = [
        *folder.glob("model/*.safetensors"),
        *folder.glob("checkpoints/*/*.safetensors"),
        *folder.glob("e*/*.jsonl"),
    ]
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
    warm = [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in runs.glob(".cache/warm-start-*/model.safetensors")
    ]
    return {"metrics": clockless, "files": hashes, "warm": warm}


def check(tmp_path: Path, moments: int) -> None:
    assert in_child(tmp_path / "whole")[0] == 0
    expected = outcome(tmp_path / "whole")
    assert len(expected["files"]) >= 8
    assert expected["files"]["model/model.safetensors"] not in expected["warm"]  # it did learn something
    total = int((tmp_path / "whole" / "events").read_text())
    rng = random.Random(0)
    for number in range(moments):
        runs, kill_at, after = tmp_path / str(number), rng.randint(1, total), rng.random() < 0.5
        ended, _ = in_child(runs, kill_at, after)
        assert ended == signal.SIGKILL
        assert in_child(runs)[0] == 0
        assert outcome(runs) == expected, f"killed at event {kill_at} of {total}"
        print(json.dumps({"moment": number, "event": kill_at, "of": total, "equal": True}))  # noqa: T201 - the table, with -s


def test_killed_and_resumed_runs_are_equal(tmp_path: Path) -> None:
    check(tmp_path, 3)


@pytest.mark.slow
def test_thirty_moments(tmp_path: Path) -> None:
    check(tmp_path, 30)


def test_sigterm_finishes_the_step_saves_and_can_be_resumed(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    model = prepare_model(small_recipe(), tmp_path, quiet)

    def terminate(kind: str, step: int, _values: Any) -> None:
        if (kind, step) == ("train", 3):
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "kill" / "run"
    assert train(small_recipe(), folder, model, terminate) is False
    assert "step-000003" in [path.name for path in (folder / "checkpoints").iterdir()]
    assert train(small_recipe(), folder, model, lambda _kind, _step, _values: None) is True
    whole = replace(small_recipe(), name="kill")
    assert train(whole, tmp_path / "whole", model, lambda _kind, _step, _values: None) is True
    assert (folder / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model" / "model.safetensors"
    ).read_bytes()
