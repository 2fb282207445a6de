"""`a2tgpo COMMAND …`: every command prints what it did and where, and exits with 2 and one paragraph when it cannot be
done.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from rich.console import Console

from a2tgpo import __version__

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
        "one HTML page about a study, and tables for papers: a2tgpo report runs/STUDY",
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `a2tgpo` command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    if not words or words[0] in ("-h", "--help"):
        console.print("usage: a2tgpo COMMAND …   (a2tgpo COMMAND --help tells a command's settings)\n")
        for name, (_, text) in COMMANDS.items():
            console.print(f"  {name:<18}{text}", highlight=False, markup=False, soft_wrap=True)
        return 0
    if words[0] == "--version":
        console.print(f"a2tgpo {__version__}", highlight=False)
        return 0
    if words[0] not in COMMANDS:
        return fail(console, f"command: got {words[0]!r}, expected one of {', '.join(COMMANDS)}")
    # read when transformers is imported, here and in worker processes
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    module, _, function = COMMANDS[words[0]][0].partition(":")
    try:
        command: Callable[[list[str], Console], int] = getattr(import_module(module), function)
        return command(words[1:], console)
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("A2TGPO_TRACEBACK") or not meant_for_users(error):
            raise
        return fail(console, str(error))
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def meant_for_users(error: Exception) -> bool:
    """Is the error's message written for whoever called the command? Those of this package and of its checks are;
    anything else is a fault to be traced.
    """
    return isinstance(error, ValueError | OSError) or type(error).__module__.startswith(("a2tgpo.", "gymnasium.error"))


def fail(console: Console, message: str) -> int:
    """Print one paragraph; the exit code of a command that could not be done."""
    Console(stderr=True, style="red").print(f"error: {message}", highlight=False, markup=False, soft_wrap=True)
    return 2
