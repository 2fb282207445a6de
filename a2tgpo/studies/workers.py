"""Tasks worked off by processes side by side, none of which outlives whoever started them.

A worker does one task after the other and ends when its pipe is closed. The rules:

- Ctrl-C and SIGTERM never raise in here. The first one starts no further task and sends SIGTERM to the workers, which
  a training run answers by finishing its step and saving; the second one kills them.
- Ctrl-C reaches the whole process group, so workers are started with it blocked: only the parent decides.
- A worker that dies takes its task with it and nothing else; another worker is started while tasks are waiting.
- A parent that dies, however that happens, is noticed by its workers, which end within `GRACE` seconds.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Final

POLL_SECONDS: Final = 0.5
GRACE: Final = 5.0
"""Seconds that an orphaned worker has to finish its step and save."""
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A call that a worker makes; all of it can be pickled."""

    name: str
    call: Callable[..., None]
    arguments: tuple[Any, ...] = ()


@dataclass
class Signals:
    """Ctrl-C and SIGTERM, counted."""

    count: int = 0
    interrupted: bool = False
    """Was any of them Ctrl-C?"""
    pipe: tuple[Connection, Connection] = field(default_factory=lambda: multiprocessing.Pipe(duplex=False))
    """Holds a message per signal, so that whoever waits wakes up."""

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.interrupted |= number == signal.SIGINT
        self.pipe[1].send(None)


@contextmanager
def signals_counted() -> Iterator[Signals]:
    """While it lasts, Ctrl-C and SIGTERM are counted and do nothing else."""
    signals = Signals()
    before = {number: signal.signal(number, signals.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def work_off(
    tasks: Sequence[WorkerTask],
    workers: int,
    signals: Signals,
    *,
    set_up: Callable[[int], None],
    tick: Callable[[], None],
    lost: Callable[[WorkerTask, int], None],
) -> None:
    """Do all tasks, or those that are begun when a signal comes.

    Args:
        tasks: in the order in which they are begun.
        workers: tasks side by side, at most.
        signals: counted by whoever calls.
        set_up: called first in every worker, with its place (0 … workers − 1).
        tick: called here, every `POLL_SECONDS` or sooner.
        lost: called here with a task whose worker died and the exit code, unless a signal had asked workers to end.
    """
    waiting, crew = deque(tasks), [_Worker(place, set_up) for place in range(min(workers, len(tasks)))]
    asked = False
    try:
        while True:
            for worker in crew:
                if not worker.task and waiting and not signals.count:
                    worker.begin(waiting.popleft())
            busy = {worker.pipe: worker for worker in crew if worker.task}
            if not busy or signals.count > 1:
                break
            if signals.count and not asked:
                asked = True
                for worker in busy.values():
                    worker.ask_to_end()
            for pipe in wait([*busy, signals.pipe[0]], POLL_SECONDS):
                if pipe is signals.pipe[0]:
                    signals.pipe[0].recv()
                    continue
                task, code = busy[pipe].finished()  # type: ignore[index]  # wait returns what it was given
                if code is not None and not signals.count:
                    lost(task, code)
            tick()
    finally:
        for worker in crew:
            worker.close()


@dataclass
class _Worker:
    """One process at a time, started with its first task and again after it has died."""

    place: int
    set_up: Callable[[int], None]
    task: WorkerTask | None = None
    pipe: Connection = field(init=False)
    _process: multiprocessing.process.BaseProcess | None = None

    def begin(self, task: WorkerTask) -> None:
        if self._process is None:
            self.pipe, other_end = _SPAWN.Pipe()
            process = _SPAWN.Process(target=_work, args=(other_end, self.set_up, self.place))
            _start_tracker()
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            other_end.close()  # so that the pipe ends with the worker
            self._process = process
        self.task = task
        with suppress(OSError):  # of a worker that is dying, which shows when its answer is read
            self.pipe.send(task)

    def finished(self) -> tuple[WorkerTask, int | None]:
        """The task that has ended, with the exit code of a worker that died over it."""
        assert self.task
        assert self._process
        task, self.task = self.task, None
        try:
            self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return task, code
        return task, None

    def ask_to_end(self) -> None:
        if self._process:
            self._process.terminate()

    def close(self) -> None:
        """End the process: at once if it is at work, else in order."""
        if self._process:
            self.pipe.close()
            if self.task:
                self._process.kill()
            self._process.join(GRACE)
            self._process.kill()
            self._process.join()


def _start_tracker() -> None:
    """Start what multiprocessing keeps beside its processes: left to the first of them, its start would unblock Ctrl-C.
    It removes what a killed worker leaves in the kernel, and need not complain about it.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _work(pipe: Connection, set_up: Callable[[int], None], place: int) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(place)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        task.call(*task.arguments)
        try:
            pipe.send(None)
        except OSError:  # nobody listens any more
            return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
