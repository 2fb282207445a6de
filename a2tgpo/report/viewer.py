"""Recorded episodes as a page to browse: groups side by side, every turn with what it saw, did, gained and was
credited.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.algorithms.explain import workings_of
from a2tgpo.config import Recipe, load_recipe
from a2tgpo.episode import Turn
from a2tgpo.errors import ConfigError
from a2tgpo.files import read_json_lines, write_text
from a2tgpo.report.page import asset, data_block, page, script
from a2tgpo.run_folder.episodes import CREDIT, VALUES, episode_from_dict

LIMIT: Final = 1000
"""Episodes that a page holds unless asked otherwise."""


@dataclass
class Collection:
    """Episodes of one or several runs in the form that the page reads; equal texts are kept once."""

    limit: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    def add_run(self, folder: Path, name: str, files: Sequence[Path], limit: int) -> None:
        """Whole groups of the files, newest file first, as long as they fit below both limits."""
        recipe = load_recipe(folder / "config.toml")
        number, room = len(self.runs), min(limit, self.limit - len(self.episodes))
        run = {
            "name": name,
            "algorithm": recipe.algorithm,
            "clip_low": None,
            "clip_high": None,
            "note": "",
        }
        self.runs.append(run)
        for path in files:
            rows = read_json_lines(path)
            for _, group in groupby(rows, key=lambda row: row["group"]):
                members = list(group)
                if len(members) > room:
                    self.left_out += len(members)
                    continue
                room -= len(members)
                z = self._normalized_gains(recipe, run, members)
                self.episodes += [
                    self._episode(number, path.stem.removeprefix("step-"), row, values)
                    for row, values in zip(members, z, strict=True)
                ]

    def data(self) -> dict[str, Any]:
        return {"runs": self.runs, "episodes": self.episodes, "texts": list(self.texts), "left_out": self.left_out}

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _normalized_gains(
        self, recipe: Recipe, run: dict[str, Any], rows: Sequence[dict[str, Any]]
    ) -> list[list[float | None]]:
        """The algorithm's z of every turn, and its clip widths into `run`."""
        nothing: list[list[float | None]] = [[None] * len(row["turns"]) for row in rows]
        if recipe.algorithm not in ALGORITHMS:  # a page never runs code that the folder it shows may name
            run["note"] = f"z and clip ranges are left out: the algorithm {recipe.algorithm!r} is not one of a2tgpo"
            return nothing
        algorithm = recipe.build_algorithm()
        run["clip_low"], run["clip_high"] = algorithm.loss.clip_low, algorithm.loss.clip_high
        places = [place for place, row in enumerate(rows) if row["stop"] != "failed" and row["turns"]]
        episodes = [episode_from_dict(rows[place]) for place in places]
        if not episodes or (
            algorithm.needs_information_gain
            and all(turn.information_gain is None for episode in episodes for turn in episode.turns)
        ):
            return nothing
        z = workings_of(algorithm, algorithm.tabulate(episodes)).columns.get("z")
        if z is not None:
            for place, values in zip(places, z.tolist(), strict=True):
                nothing[place] = [_short(value) for value in values[: len(rows[place]["turns"])]]
        return nothing

    def _episode(self, run: int, step: str, row: dict[str, Any], z: Sequence[float | None]) -> dict[str, Any]:
        episode = episode_from_dict(row)
        return {
            "run": run,
            "step": int(step) if step.isdigit() else step,
            "group": episode.group,
            "question": episode.question_id,
            "gold": episode.gold_answers,
            "outcome": _short(episode.outcome),
            "em": episode.em,
            "f1": _short(episode.f1),
            "answer": episode.answer,
            "stop": str(episode.stop),
            "error": episode.error,
            "closing": self._text(row["closing_text"]),
            "turns": [
                self._turn(turn, texts, value)
                for turn, texts, value in zip(episode.turns, row["turns"], z, strict=True)
            ],
        }

    def _turn(self, turn: Turn, row: dict[str, Any], z: float | None) -> dict[str, Any]:
        return {
            "context": self._text(row["context_text"]),
            "tokens": [self._text(text) for text in row["action_texts"]],
            "logprobs": [_short(value) for value in turn.action_logprobs],
            "action": str(turn.action),
            "query": turn.query,
            "passages": list(turn.passage_ids),
            "z": z,
            "information_gain": _short(turn.information_gain),
            **{name: _short(row.get(name)) for name in (*VALUES, *CREDIT)},
        }


def write_viewer(run: Path, output: Path, limit: int = LIMIT) -> Collection:
    """Write the page over all recorded episodes of a run.

    Raises:
        ConfigError: if the folder is no run or has no recorded episode.
    """
    collection = Collection(limit)
    if not (run / "config.toml").is_file():
        raise ConfigError(
            f"run: got {str(run)!r}, which has no config.toml; expected the folder of a run, like"
            " runs/quickstart/a2tgpo-s0"
        )
    collection.add_run(run, run.name, episode_files(run), limit)
    if not collection.episodes:
        raise ConfigError(
            f"run: got {str(run)!r}, which has no recorded episode yet; expected files in {run / 'episodes'}"
            " (training.log_episodes_every)"
        )
    write_text(
        output,
        page(
            f"Episodes of {run.name}",
            f"<h1>Episodes of {escape(run.name)}</h1>" + section(),
            [script("viewer.js")],
            [block(collection)],
        ),
    )
    return collection


def episode_files(run: Path) -> list[Path]:
    """Recorded episodes of a run, newest first."""
    return sorted((run / "episodes").glob("*.jsonl"), reverse=True)


def section() -> str:
    """Where the page's script builds the viewer."""
    return asset("viewer.html")


def block(collection: Collection) -> str:
    """The episodes as a data block of the page."""
    return data_block("episodes", collection.data())


def _short(value: Any) -> float | None:
    """Four significant digits; null where there is no number."""
    return float(f"{value:.4g}") if isinstance(value, int | float) and math.isfinite(value) else None
