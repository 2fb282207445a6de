"""`a2tgpo COMMAND …`: every command prints what it did and where. What it cannot do ends with 2 and one paragraph, a
fault of this package with 1 and a traceback (`a2tgpo.errors` has the rule).
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from a2tgpo import __version__
from a2tgpo.errors import A2TGPOError

if TYPE_CHECKING:
    pass

REPORT = (
    f"This is a fault of a2tgpo {__version__}, not of your input. Please report it with the command, the recipe, this"
    " traceback, and the versions of Python and torch."
)
COMMANDS: dict[str, tuple[str, str]] = {
    "compare": (
        "a2tgpo.commands.compare:compare",
        "train and compare algorithms: a2tgpo compare STUDY [--algorithm NAME …] [--ablate NAME …]",
    ),
    "train": ("a2tgpo.commands.study:train", "one training run: a2tgpo train RECIPE [--algorithm NAME] [any setting]"),
    "evaluate": (
        "a2tgpo.commands.evaluate:evaluate",
        "score a run or a model folder on held-out questions: a2tgpo evaluate RUN",
    ),
    "export": ("a2tgpo.commands.export:export", "a run's policy as a model folder: a2tgpo export RUN -o FOLDER"),
    "baseline": (
        "a2tgpo.commands.baseline:baseline",
        "what one compares with: baseline table [--model FOLDER], baseline sb3 --algo ppo|a2c|dqn",
    ),
    "report": (
        "a2tgpo.commands.report:report",
        "one HTML page about a study or a run, and tables for papers: a2tgpo report runs/STUDY",
    ),
    "view": ("a2tgpo.commands.report:view", "one HTML page to browse a run's episodes: a2tgpo view runs/STUDY/RUN"),
    "false-calls": (
        "a2tgpo.commands.report:false_calls",
        "how often the statistics see a difference where there is none, by simulation",
    ),
    "play": ("a2tgpo.commands.play:play", "watch or play one episode in the terminal"),
    "explain": (
        "a2tgpo.commands.explain:explain",
        "how an algorithm came to the credit of recorded episodes: a2tgpo explain ALGORITHM --episode FILE",
    ),
    "data": ("a2tgpo.commands.data:data", "question files: data inspect FILE, data corpus FILE… -o DIR, data index"),
    "serve-retriever": ("a2tgpo.commands.serve:serve_retriever", "serve a corpus over HTTP"),
    "bench": (
        "a2tgpo.commands.bench:bench",
        "what the work costs on this machine: a2tgpo bench information-gain, update, credit, env, retrieval or rollout",
    ),
    "recipes": ("a2tgpo.commands.study:recipes", "list the recipes that ship with the package"),
}
"""Name → (function, help). Looked up by name so that `a2tgpo --help` imports neither torch nor a command."""

STOPPED_EARLY = b"stopped; the same command goes on from what is saved\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `a2tgpo` command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with _stopped_once(), _sigterm_ends(words[:1]):
        return _run(words)


def _run(words: list[str]) -> int:
    from rich.console import Console

    from a2tgpo.checks import did_you_mean
    from a2tgpo.display.lines import say

    console = Console()
    if not words or words[0] in ("-h", "--help"):
        say(console, "usage: a2tgpo COMMAND …   (a2tgpo COMMAND --help lists its options)", "")
        say(console, *(f"  {name:<18}{text}" for name, (_, text) in COMMANDS.items()))
        return 0
    if words[0] == "--version":
        say(console, f"a2tgpo {__version__}")
        return 0
    if words[0] not in COMMANDS:
        expected = f"expected one of {', '.join(COMMANDS)}{did_you_mean(words[0], COMMANDS)}"
        return fail(f"command: got {words[0]!r}, {expected}")
    # read when transformers is imported, here and in worker processes
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    module, _, function = COMMANDS[words[0]][0].partition(":")
    try:
        command: Callable[[list[str], Console], int] = getattr(import_module(module), function)
        return command(words[1:], console)
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except A2TGPOError as error:
        if os.environ.get("A2TGPO_TRACEBACK"):
            raise
        return fail(str(error))
    except Exception:
        traceback.print_exc()
        sys.stderr.write(f"{REPORT}\n")
        return 1
    except KeyboardInterrupt:
        say(console, "stopped")
        return 130


def fail(message: str) -> int:
    """Print one paragraph; the exit code of a command that could not be done."""
    from rich.console import Console

    from a2tgpo.display.lines import printable, say

    say(Console(stderr=True, style="red"), f"error: {printable(message)}")
    return 2


@contextmanager
def _stopped_once() -> Iterator[None]:
    """Ctrl-C stops a command once and in order; what comes while it ends is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _sigterm_ends(command: Sequence[str]) -> Iterator[None]:
    """SIGTERM ends `train` and `compare` with exit code 0 from their first line on. Once there is a run it finishes its
    step and saves (`a2tgpo.training.run`); before, during imports and the warm start, nothing would be lost.
    """
    if command not in (["train"], ["compare"]) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        os.write(1, STOPPED_EARLY)
        os._exit(0)  # an exception could be swallowed by whatever is being imported

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
