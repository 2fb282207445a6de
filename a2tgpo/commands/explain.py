"""`a2tgpo explain`: the credit of recorded episodes, step by step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.display.lines import printable, say
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class ExplainOptions:
    """Which algorithm's credit is explained, and of which episodes."""

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """Name of the algorithm, or path.py:Class."""
    episode: Path
    """Episodes file of a run: runs/…/episodes/….jsonl."""
    question: str = ""
    """Only this question's group; all groups of the file if left out."""


def explain(words: list[str], console: Console) -> int:
    """Print how the credit of every turn comes about."""
    options = parse(ExplainOptions, words, "explain")
    from a2tgpo.algorithms.explain import explain as explained
    from a2tgpo.algorithms.loader import make_algorithm
    from a2tgpo.run_folder.episodes import read_episodes

    algorithm = make_algorithm(options.algorithm)
    if not options.episode.is_file():
        raise ConfigError(
            f"--episode: got {str(options.episode)!r}, which is not a file; expected a .jsonl file of a run's episodes"
            " folder"
        )
    episodes = read_episodes(options.episode)
    if options.question:
        known = dict.fromkeys(episode.question_id for episode in episodes)
        episodes = [episode for episode in episodes if episode.question_id == options.question]
        if not episodes:
            raise ConfigError(
                f"--question: got {options.question!r}, expected one of the file's questions: {', '.join(known)}"
            )
    say(console, printable(explained(episodes, algorithm)))
    return 0
