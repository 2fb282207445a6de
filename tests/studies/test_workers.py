"""Workers end with whoever started them, whatever ends it and whenever, and the same call does what is left."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.chores import STEPS
from tests.support.processes import Group

CHORES = 5
MODULE = ("-m", "tests.support.chores")
EVENTS = CHORES * (STEPS + 2)
"""Files that a run makes: a folder and a sign of life or the end of every chore, and its steps."""
ENDINGS = ("kill parent", "terminate parent", "Ctrl-C", "Ctrl-C twice", "Ctrl-C three times", "kill worker")


def files(root: Path) -> list[Path]:
    return list(root.glob("*/*"))


def end(group: Group, how: str, workers: list[int]) -> None:
    if how == "kill parent":
        os.kill(group.parent.pid, signal.SIGKILL)
    elif how == "terminate parent":
        os.kill(group.parent.pid, signal.SIGTERM)
    elif how == "kill worker":
        with suppress(ProcessLookupError):  # it may just have ended
            os.kill(workers[-1] if workers else group.parent.pid, signal.SIGKILL)
    else:
        group.interrupt(("Ctrl-C", "Ctrl-C twice", "Ctrl-C three times").index(how) + 1)


@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=pytest.mark.slow if moment >= len(ENDINGS) else ()) for moment in range(36)]
)
def test_nothing_stays_and_the_same_call_heals(tmp_path: Path, moment: int) -> None:
    rng = random.Random(moment)
    how, at, root, said = ENDINGS[moment % len(ENDINGS)], rng.randrange(EVENTS), tmp_path / "root", tmp_path / "said"
    root.mkdir()
    arguments = (*MODULE, str(root), str(CHORES), "2", "0.01")
    with Group(arguments, said) as group:
        group.wait_for(lambda: len(files(root)) >= at)
        workers = [pid for pid in group.children() if any(path.name == f"pid-{pid}" for path in files(root))]
        end(group, how, workers)
        group.wait_until_gone()
    if not how.startswith("kill"):  # at the very end, the last signal may find Python itself on its way out
        assert said.read_text() in ("stopped\n", "done\n", "")
    with Group(arguments, said) as group:
        assert group.wait_until_gone() == 0
    assert said.read_text() == "done\n"
    assert len(list(root.glob("*/finished"))) == CHORES


def test_a_dead_worker_takes_its_own_task_along_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Group((*MODULE, str(root), "4", "2", "0.05"), tmp_path / "said") as group:
        assert group.wait_for(lambda: (root / "1" / "step-0").exists())
        [pid] = [int(path.name.removeprefix("pid-")) for path in root.glob("1/pid-*")]
        os.kill(pid, signal.SIGKILL)
        assert group.wait_until_gone() == 0
    assert sorted(path.parent.name for path in root.glob("*/finished")) == ["0", "2", "3"]
    assert [path.name for path in root.glob("*/lost*")] == ["lost-9"]


@pytest.mark.parametrize("how", ["kill parent", "Ctrl-C twice"])
def test_a_step_that_takes_for_ever_does_not_keep_a_worker_alive(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Group((*MODULE, str(root), "2", "2", "100000"), tmp_path / "said") as group:
        assert group.wait_for(lambda: len(list(root.glob("*/pid-*"))) == 2)
        end(group, how, [])
        assert group.wait_until_gone() == (-signal.SIGKILL if how == "kill parent" else 130)
    assert (tmp_path / "said").read_text() == ("" if how == "kill parent" else "stopped\n")


def test_one_ctrl_c_lets_the_step_at_hand_end_and_begins_no_task(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Group((*MODULE, str(root), "4", "2", "1"), tmp_path / "said") as group:
        assert group.wait_for(lambda: len(list(root.glob("*/pid-*"))) == 2)
        group.interrupt()
        assert group.wait_until_gone() == 130
    assert (tmp_path / "said").read_text() == "stopped\n"
    assert {path.parent.name for path in root.glob("*/step-*")} == {"0", "1"}
    assert not list(root.glob("*/finished"))
