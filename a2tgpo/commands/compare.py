"""`a2tgpo compare`: train the runs of a study and sum them up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import Inline, Repeated, parse
from a2tgpo.commands.study import Source, describe, source_of, with_added
from a2tgpo.config import Recipe
from a2tgpo.display.lines import say


@dataclass(frozen=True, slots=True)
class _Study(Recipe):
    """A recipe whose algorithms are the study's."""

    algorithm: tyro.conf.SuppressFixed[tyro.conf.Fixed[str]] = "a2tgpo"


@dataclass(frozen=True)
class CompareOptions:
    """Train the runs of a study and sum them up. The recipe's table [study] says what is compared; every setting can be
    given as an option. The exit code is 1 if a run crashed.
    """

    source: Source = ""
    """Name of a shipped recipe (`a2tgpo recipes` lists them), or a .toml file. Stands first."""
    algorithm: Annotated[Repeated, tyro.conf.arg(metavar="NAME|FILE.py:CLASS …")] = ()
    """Add algorithms to the study; `--study.algorithms` names all of them instead."""
    ablate: Annotated[Repeated, tyro.conf.arg(metavar="ALGORITHM …")] = ()
    """Add an algorithm with its parts switched off."""
    allow: Annotated[Repeated, tyro.conf.arg(metavar="ENTRY …")] = ()
    """Compare runs although their manifests differ in these entries."""
    runs: Path = Path("runs")
    """Folder for runs; a study goes into a folder of its own in there."""
    dry_run: bool = False
    """Print the complete recipe and what it needs (files, index, memory, time), and stop."""
    recipe: Annotated[_Study, Inline] = field(default_factory=_Study)

    def study(self) -> Recipe:
        """The recipe with the repeated options' values appended to the study's lists, each once."""
        values = {entry.name: getattr(self.recipe, entry.name) for entry in fields(Recipe)}
        return with_added(Recipe(**values), algorithms=self.algorithm, ablate=self.ablate, allow=self.allow)


def compare(words: list[str], console: Console) -> int:
    """Run `a2tgpo compare`."""
    options = options_of(words)
    recipe = options.study()
    if options.dry_run:
        from a2tgpo.studies.contenders import contenders_of

        contenders = contenders_of(recipe)
        for contender in contenders:
            contender.recipe.build_algorithm()
        describe(console, recipe, len(contenders))
        return 0
    from a2tgpo.studies.runner import StoppedError
    from a2tgpo.studies.runner import compare as run

    try:
        jobs = run(recipe, options.runs, console)
    except StoppedError as stopped:
        say(console, str(stopped))
        return 130 if stopped.interrupted else 0
    return 1 if any(job.problem.startswith("crashed") for job in jobs) else 0


def options_of(words: Sequence[str]) -> CompareOptions:
    """The options of `compare` on top of the recipe that they begin with."""
    start = source_of(words, "compare")
    values = {entry.name: getattr(start, entry.name) for entry in fields(Recipe)}
    return parse(CompareOptions, words, "compare", CompareOptions(recipe=_Study(**values)))
