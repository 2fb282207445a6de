"""Tasks for workers that need no time to import, and a parent that has them done: `python -m tests.support.chores`."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from a2tgpo.studies.workers import WorkerTask, signals_counted, work_off

STEPS = 4


def chore(folder: Path, seconds: float) -> None:
    """Like a training run: step after step, each of which is kept; SIGTERM ends it after the step at hand."""
    stopping = False
    held = multiprocessing.get_context(
        "spawn"
    ).RLock()  # as progress bars hold one, which stays in the kernel when a worker is killed

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = signal.signal(signal.SIGTERM, stop)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"pid-{os.getpid()}").touch()
    for step in range(STEPS):
        if not stopping and not (folder / f"step-{step}").exists():
            time.sleep(seconds)
            with held:
                (folder / f"step-{step}").touch()
    signal.signal(signal.SIGTERM, before)
    if (folder / f"step-{STEPS - 1}").exists():
        (folder / "finished").touch()


def no_set_up(_place: int) -> None:
    """Nothing."""


def main(root: Path, chores: int, workers: int, seconds: float) -> int:
    with signals_counted() as signals:
        tasks = [WorkerTask(f"{number}", chore, (root / f"{number}", seconds)) for number in range(chores)]
        work_off(
            [task for task in tasks if not (root / task.name / "finished").exists()],
            workers,
            signals,
            set_up=no_set_up,
            tick=lambda: None,
            lost=lambda task, code: (root / task.name / f"lost{code}").touch(),
        )
    print("stopped" if signals.count else "done")  # noqa: T201 - read by the test
    return 130 if signals.count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
