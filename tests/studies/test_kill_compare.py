"""A study that is ended at any moment leaves nothing running, and the same command ends it as if nothing had been."""

import hashlib
import json
import os
import random
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from a2tgpo.config import Recipe, StudySettings, to_toml
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.start.prepare import prepare_model
from tests.support.processes import Group
from tests.support.recipes import small_recipe

ENDINGS = ("kill parent", "kill worker", "terminate parent", "Ctrl-C", "Ctrl-C twice", "Ctrl-C three times")


def study(algorithms: tuple[str, ...]) -> Recipe:
    recipe = replace(small_recipe(), name="small")
    # a commit while the tests run is no failure
    chosen = StudySettings(algorithms=algorithms, baseline=algorithms[-1], seeds=(0,), workers=2, allow=("git_commit",))
    return replace(recipe, study=chosen, warm_start=replace(recipe.warm_start, max_steps=50))


def command(root: Path, recipe: Recipe) -> list[str]:
    (root / "recipe.toml").write_text(to_toml(recipe))
    return ["-m", "a2tgpo", "compare", str(root / "recipe.toml"), "--runs", str(root / "runs")]


def events(root: Path) -> int:
    """Grows with everything that the runs write."""
    lines = sum(path.read_bytes().count(b"\n") for path in root.glob("runs/small/*/metrics.jsonl"))
    return lines + len(list(root.glob("runs/small/*/**/*")))


def outcome(root: Path) -> dict[str, Any]:
    """Everything that must be equal: weights, metrics without the clock, evaluations and episodes."""
    found: dict[str, Any] = {}
    for folder in sorted(root.glob("runs/small/*-s0")):
        clock = ("seconds_", "probe_time")
        found[folder.name] = [
            {key: value for key, value in row.items() if not key.startswith(clock) and value == value}
            for row in read_metrics(folder)
        ]
        files = [*folder.glob("model/*.safetensors"), *folder.glob("checkpoints/*/*.safetensors")]
        for path in sorted([*files, *folder.glob("e*/*.jsonl")]):
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def end(group: Group, how: str) -> None:
    if how == "kill worker":
        workers = group.children()
        with suppress(ProcessLookupError):  # it may just have ended
            os.kill(workers[-1] if workers else group.parent.pid, signal.SIGKILL)
    elif how.startswith("Ctrl-C"):
        group.interrupt(ENDINGS.index(how) - 2)
    else:
        os.kill(group.parent.pid, signal.SIGKILL if how == "kill parent" else signal.SIGTERM)


def ended_and_healed(root: Path, recipe: Recipe, how: str, at: int) -> str:
    """What the command said when it was ended."""
    root.mkdir()
    prepare_model(recipe, root / "runs", Console(quiet=True))
    with Group(command(root, recipe), root / "said") as group:
        group.wait_for(lambda: events(root) >= at)
        end(group, how)
        group.wait_until_gone()
    said = (root / "said").read_text()
    with Group(command(root, recipe), root / "healed") as group:
        assert group.wait_until_gone() == 0, (root / "healed").read_text()
    assert len(list(root.glob("runs/small/*/finished"))) == len(recipe.study.algorithms)
    assert "left out" not in (root / "healed").read_text()
    return said


def test_a_killed_study_is_healed_by_the_same_command(tmp_path: Path) -> None:
    ended_and_healed(tmp_path / "study", study(("grpo",)), "kill parent", at=20)


@pytest.mark.slow
def test_twenty_moments(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    recipe = study(("a2tgpo", "grpo"))
    with Group(command(tmp_path / "whole", recipe), tmp_path / "said") as group:
        assert group.wait_until_gone() == 0, (tmp_path / "said").read_text()
    expected, total = outcome(tmp_path / "whole"), events(tmp_path / "whole")
    assert len(expected) >= 20
    rng = random.Random(0)
    for number in range(24):
        how, at = ENDINGS[number % len(ENDINGS)], rng.randrange(total)
        said = ended_and_healed(tmp_path / str(number), recipe, how, at)
        assert outcome(tmp_path / str(number)) == expected, (how, at, total)
        assert "Traceback" not in said
        if not how.startswith("kill") and "all of it" not in said:  # the summary, where the signal came too late
            assert said.rstrip("\n").split("\n")[-1].startswith("stopped"), said
        print(json.dumps({"moment": number, "how": how, "event": at, "of": total, "equal": True}))  # noqa: T201 - the table, with -s
