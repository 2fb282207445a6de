"""`a2tgpo export`: a run's policy as an ordinary model folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.display.lines import say
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class ExportOptions:
    """A checkpoint of a run as a model folder that transformers reads."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run, like runs/quickstart/a2tgpo-s0."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """Folder to be made."""
    checkpoint: str = "last"
    """`last`, `best` by held-out outcome, or the number of a step whose checkpoint is kept."""


def export(words: list[str], console: Console) -> int:
    """Write the model folder."""
    options = parse(ExportOptions, words, "export")
    from a2tgpo.run_folder.load import checkpoint_named, load_run

    if options.output.exists():
        raise ConfigError(
            f"--output: got {str(options.output)!r}, which exists already, expected a folder to be made; choose another"
            " name"
        )
    loaded = load_run(options.run, checkpoint_named(options.checkpoint))
    loaded.policy.save(options.output)
    say(console, f"written: {options.output}, from {loaded.model_folder}")
    return 0
