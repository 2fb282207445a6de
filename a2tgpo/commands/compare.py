"""`a2tgpo compare`: train the runs of a study and sum them up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from a2tgpo.commands.study import read_recipe
from a2tgpo.config import Recipe

SHORTHANDS = {"--algorithm": "algorithms", "--ablate": "ablate", "--allow": "allow"}
"""Options of `compare` that add to a list of the study, which `--study.NAME` replaces."""


def compare(words: list[str], console: Console) -> int:
    """`a2tgpo compare STUDY [--algorithm NAME|FILE.py:CLASS …] [--ablate ALGORITHM …] [--allow FIELD …] [any setting]`.

    The exit code is 1 if a run crashed.
    """
    added, rest = take(words, list(SHORTHANDS))
    if any(word in ("-h", "--help") for word in words):
        console.print(
            "a2tgpo compare STUDY: STUDY is a recipe's name or .toml file; its table [study] says what is compared."
            " Besides all settings below:\n  --algorithm NAME|FILE.py:CLASS …  adds algorithms to the study"
            " (--study.algorithms names all of them instead)\n  --ablate ALGORITHM …              adds the algorithm"
            " with its parts switched off\n  --allow FIELD …                   compares runs although their manifests"
            " differ there\n",
            highlight=False,
            markup=False,
        )
    options = read_recipe(rest, "compare", console, lambda recipe: with_added(recipe, added))
    if options is None:
        return 0
    from a2tgpo.studies.runner import compare as run

    jobs = run(options.recipe, options.runs, console)
    return 1 if any(job.problem.startswith("crashed") for job in jobs) else 0


def with_added(recipe: Recipe, added: dict[str, list[str]]) -> Recipe:
    """The recipe with the shorthand options' values appended to the study's lists, each once."""
    lists: dict[str, Any] = {
        SHORTHANDS[flag]: tuple(dict.fromkeys([*getattr(recipe.study, SHORTHANDS[flag]), *values]))
        for flag, values in added.items()
    }
    return replace(recipe, study=replace(recipe.study, **lists))


def take(words: Sequence[str], flags: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The values given to `flags` (`--flag a b` or `--flag=a`), and all other words."""
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    current: list[str] = rest
    for word in words:
        name, equals, value = word.partition("=")
        if name in flags:
            current = found.setdefault(name, [])
            current += [value] if equals else []
        else:
            current = rest if word.startswith("-") else current
            current.append(word)
    return found, rest
