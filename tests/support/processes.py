"""A command in a process group of its own, and what is left of the group."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class Group:
    """A Python command, its children and theirs. Whatever the test does, nothing of it stays."""

    def __init__(self, arguments: Sequence[str], output: Path) -> None:
        with output.open("w") as file:
            self.parent = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.alive():
            os.killpg(self.parent.pid, signal.SIGKILL)
        self.parent.wait()

    def alive(self) -> list[int]:
        """Process ids of the group, without what has ended and only waits to be asked for its exit code."""
        listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.split("\n") if line.strip()]
        return [int(pid) for pid, group, state in rows if int(group) == self.parent.pid and not state.startswith("Z")]

    def children(self) -> list[int]:
        """All but the parent."""
        return [pid for pid in self.alive() if pid != self.parent.pid]

    def interrupt(self, times: int = 1) -> None:
        """Ctrl-C, which the terminal sends to the whole group; not so quickly that the kernel takes two for one."""
        for _ in range(times):
            os.killpg(self.parent.pid, signal.SIGINT)
            time.sleep(0.03)

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds; False if the command ended before."""
        while not condition():
            if self.parent.poll() is not None:
                return condition()
            time.sleep(0.002)
        return True

    def wait_until_gone(self) -> int:
        """The parent's exit code, once nothing of the group runs any more."""
        code = self.parent.wait()
        while self.alive():
            time.sleep(0.05)
        return code
