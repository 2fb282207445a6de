"""`a2tgpo explain`: the credit of recorded episodes, step by step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.config import Recipe, load_recipe
from a2tgpo.display.lines import printable, say
from a2tgpo.errors import ConfigError, DataError
from a2tgpo.user_code import names_file

if TYPE_CHECKING:
    from a2tgpo.algorithms import Algorithm
    from a2tgpo.episode import Episode


@dataclass(frozen=True)
class ExplainOptions:
    """Show how the credit of recorded episodes comes about: the one that the run had, or that of another algorithm."""

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")] = ""
    """Name of another algorithm, with its published parameters, or path.py:Class; by default the run's own, with the
    parameters that it was trained with.
    """
    episode: Path = Path()
    """Episodes file of a run: runs/…/episodes/….jsonl."""
    question: str = ""
    """Only this question's group; all groups of the file if left out."""


def explain(words: list[str], console: Console) -> int:
    """Print how the credit of every turn comes about."""
    options = parse(ExplainOptions, words, "explain")
    from a2tgpo.algorithms.explain import explain as explained
    from a2tgpo.algorithms.loader import load_algorithm
    from a2tgpo.run_folder.episodes import read_episodes

    named = load_algorithm(options.algorithm) if options.algorithm else None
    if not options.episode.is_file():
        raise ConfigError(
            f"--episode: got {str(options.episode)!r}, which is not a file; expected a .jsonl file of a run's episodes"
            " folder"
        )
    recipe = _recipe_of(options.episode)
    own = recipe is not None and options.algorithm in ("", recipe.algorithm)
    if recipe is not None and own:
        if names_file(recipe.algorithm) and named is None:
            raise ConfigError(
                f"algorithm: got none, and the run's own is {recipe.algorithm!r}; a file that a recipe names is run"
                f" only on request: a2tgpo explain {recipe.algorithm} --episode {options.episode}"
            )
        algorithm = recipe.build_algorithm()
    elif named is not None:
        algorithm = named()
    else:
        raise ConfigError(
            f"algorithm: got none, and {options.episode} does not lie in a run's folder, whose config.toml would name"
            " it; expected `a2tgpo explain ALGORITHM --episode FILE`"
        )
    episodes = read_episodes(options.episode)
    known = dict.fromkeys(episode.question_id for episode in episodes)
    if options.question and options.question not in known:
        raise ConfigError(
            f"--question: got {options.question!r}, expected one of the file's questions: {', '.join(known)}"
        )
    if own:
        _check_recorded(options.episode, episodes, algorithm)
    say(console, printable(explained(episodes, algorithm, options.question or None)))
    return 0


def _recipe_of(episodes: Path) -> Recipe | None:
    """The recipe of the run whose folder the file lies in, if it does."""
    stored = episodes.resolve().parent.parent / "config.toml"
    return load_recipe(stored) if stored.is_file() else None


def _check_recorded(path: Path, episodes: "Sequence[Episode]", algorithm: "Algorithm") -> None:
    """Check that the credit that is about to be explained is the one that the run trained with.

    Raises:
        DataError: naming the first turn where it is not.
    """
    from a2tgpo.algorithms.credit import checked_credit
    from a2tgpo.run_folder.episodes import CREDIT, recorded_credit

    rows = [
        (row, recorded)
        for row, (episode, recorded) in enumerate(zip(episodes, recorded_credit(path), strict=True))
        if not episode.failed and episode.turns and recorded[0]
    ]
    if not rows:
        return  # written when a step broke, before there was any credit
    credit = checked_credit(algorithm, algorithm.tabulate([episodes[row] for row, _ in rows]))
    for place, (row, recorded) in enumerate(rows):
        for turn, values in enumerate(recorded):
            for name in CREDIT:
                now = float(getattr(credit, name)[place, turn])
                if not math.isclose(now, values[name], rel_tol=1e-4, abs_tol=1e-6):
                    raise DataError(
                        f"explain: episode {row}, turn {turn} of {path} was trained with {name} {values[name]:g}, but"
                        f" the algorithm gives {now:g}; the file, the run's config.toml or the algorithm's code has"
                        " changed since"
                    )
