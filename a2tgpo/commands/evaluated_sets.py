"""Which data sets an evaluation asks, each with its split: by name, by file, or a whole suite by one word."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from a2tgpo.checks import did_you_mean
from a2tgpo.config import Recipe
from a2tgpo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from a2tgpo.envs.data.suites import PublicSet

SPLIT_WORDS = ("all", "train", "training", "validation", "dev", "valid", "val", "test")


@dataclass(frozen=True, slots=True)
class AskedSet:
    """One data set of an evaluation."""

    name: str
    """As papers call it, or as it was given."""
    recipe: Recipe
    """With its environment."""
    split: str
    kind: str = ""
    """`multi-hop` or `single-hop`, of the public sets."""


def asked_sets(recipe: Recipe, datasets: Sequence[str], suite: str, split: str, corpus: str) -> list[AskedSet]:
    """The data sets, in order; the recipe's own questions where neither a set nor a suite is named.

    Args:
        datasets: ids like HotpotQA, files or folders, each perhaps with `:SPLIT`.
        suite: a name in `SUITES`.
        split: of sets that name none; empty = `all` (of the recipe's own questions, `test`).
        corpus: for all of them.

    Raises:
        ConfigError: for an unknown suite, or both sets and a suite.
        DataError: if files of the suite are missing; lists all of them, with where they come from.
    """
    if suite:
        if datasets or split:
            raise ConfigError(f"--suite: got {suite!r} beside --datasets or --split, expected it alone: it names both")
        return _suite(recipe, suite, corpus)
    if not datasets:
        return [AskedSet(recipe.environment.id, recipe, split or "test")]
    from a2tgpo.envs.registration import DATASETS

    found = []
    for given in datasets:
        name, _, word = given.rpartition(":")
        name, own = (name, word) if name and word in SPLIT_WORDS else (given, split or "all")
        kind, file = (name, "") if name in DATASETS else ("SearchQA", name)
        found.append(AskedSet(given, _elsewhere(recipe, kind, file, corpus), own))
    return found


def _suite(recipe: Recipe, suite: str, corpus: str) -> list[AskedSet]:
    from a2tgpo.envs.data.suites import SUITES

    if suite not in SUITES:
        known = ", ".join(SUITES)
        raise ConfigError(f"--suite: got {suite!r}, expected one of {known}{did_you_mean(suite, SUITES)}")
    found: list[AskedSet] = []
    missing: list[str] = []
    for entry in SUITES[suite]:
        split = _split_that_is_there(entry)
        if split is None:
            missing.append(f"{entry.title}: {entry.source}, into the folder {entry.folder}")
        else:
            found.append(AskedSet(entry.title, _elsewhere(recipe, entry.id, "", corpus), split, entry.hops))
    if missing:
        listed = "\n  ".join(missing)
        raise DataError(
            f"--suite {suite}: {len(missing)} of {len(SUITES[suite])} data sets are missing below $A2TGPO_DATA; nothing"
            f" is downloaded automatically, put there\n  {listed}\nor name those that are there with --datasets"
        )
    return found


def _split_that_is_there(entry: "PublicSet") -> str | None:
    """The reported split if the folder has a file for it; `all` of a folder with one prepared file; else `None`."""
    from a2tgpo.envs.data.splits import files_of_split
    from a2tgpo.envs.sources import locate

    try:
        path = Path(locate(entry.folder))
        if path.is_file() or (path / "questions.jsonl").is_file():
            return "all"
        files_of_split(path, entry.split)
    except DataError:
        return None
    return entry.split


def _elsewhere(recipe: Recipe, kind: str, file: str, corpus: str) -> Recipe:
    """The recipe with the questions of another environment."""
    from a2tgpo.envs.registration import NAMESPACE

    environment = recipe.environment.elsewhere(f"{NAMESPACE}/{kind}-v0")
    return replace(recipe, environment=replace(environment, dataset=file, corpus=corpus))
