"""Everything a run writes into its folder, except checkpoints.

config.toml      the complete recipe
manifest.json    what the numbers depend on
metrics.jsonl    one line per training step (`kind: train`) and per evaluation (`kind: evaluation`)
episodes/        sampled episodes with their credit, one file per logged step
tensorboard/     the same metrics for TensorBoard
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from a2tgpo.batch import Credit
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError


class RunLog:
    """Writer of one run's folder. Every line is flushed when it is written, so that a killed run leaves whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "episodes").mkdir(parents=True, exist_ok=True)
        self._metrics = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"))

    def metrics(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Append one line; NaN (a mean over nothing) is stored as null."""
        line = {
            "kind": kind,
            "step": step,
            **{name: None if math.isnan(value) else value for name, value in values.items()},
        }
        self._metrics.write(json.dumps(line, allow_nan=False) + "\n")
        self._metrics.flush()
        for name, value in values.items():
            if not math.isnan(value):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def episodes(
        self,
        name: str,
        episodes: Sequence[Episode],
        tokenizer: Any,
        credit: Credit | None = None,
        values: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Write episodes with the text of every token, their credit and the gold answer's values at their cuts
        (`Measurement.values`), if any.
        """
        lines = (
            json.dumps(episode_to_dict(episode, tokenizer, credit, row, values), ensure_ascii=False)
            for row, episode in enumerate(episodes)
        )
        write_text(self.folder / "episodes" / f"{name}.jsonl", "".join(line + "\n" for line in lines))

    def close(self) -> None:
        self._metrics.close()
        self._board.close()


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_metrics(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl`, all or of one kind; null becomes NaN. A last line that was cut off is left out.

    Raises:
        ConfigError: if another line is no metrics line.
    """
    path = folder / "metrics.jsonl"
    rows = []
    for number, line in enumerate(
        path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else [], 1
    ):
        try:
            rows.append({key: math.nan if value is None else value for key, value in json.loads(line).items()})
        except (json.JSONDecodeError, AttributeError) as error:
            if not line.endswith("\n"):
                break  # cut off: by a kill, or by reading while it is written
            raise ConfigError(
                f"metrics: line {number} of {path} is no metrics line ({error}); mend or remove it"
            ) from error
    return [row for row in rows if kind is None or row["kind"] == kind]


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop the lines after `step`, and a line that was cut off, before a run is resumed from its checkpoint."""
    path = folder / "metrics.jsonl"
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the write that a kill interrupted
            break
        if row["step"] <= step:
            kept.append(line)
    write_text(path, "".join(line + "\n" for line in kept))


def episode_to_dict(
    episode: Episode, tokenizer: Any, credit: Credit | None, row: int, values: Sequence[Sequence[float]] | None = None
) -> dict[str, Any]:
    """An episode as JSON: all its fields, the text of every token, and per turn its credit (row `row` of `credit`) and
    the gold answer's values.
    """
    data = {entry.name: getattr(episode, entry.name) for entry in dataclasses.fields(episode)}
    data["closing_text"] = tokenizer.decode(list(episode.closing_ids))
    data["turns"] = []
    for index, turn in enumerate(episode.turns):
        fields = {entry.name: getattr(turn, entry.name) for entry in dataclasses.fields(turn)}
        texts = {
            "context_text": tokenizer.decode(list(turn.context_ids)),
            "action_texts": tokenizer.batch_decode([[token] for token in turn.action_ids]),
        }
        given = (
            {}
            if credit is None
            else {name: float(getattr(credit, name)[row, index]) for name in ("advantage", "clip_scale", "weight")}
        )
        around = (
            {}
            if values is None
            else {name: _number(values[row][index + step]) for step, name in enumerate(("value_before", "value_after"))}
        )
        data["turns"].append(fields | texts | given | around)
    return data


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def episode_from_dict(data: Mapping[str, Any]) -> Episode:
    """Inverse of `episode_to_dict`; the texts and the credit are left aside."""
    turn_names = [entry.name for entry in dataclasses.fields(Turn)]
    turns = tuple(
        Turn(
            **{
                **{name: turn[name] for name in turn_names},
                "context_ids": tuple(turn["context_ids"]),
                "action_ids": tuple(turn["action_ids"]),
                "action_logprobs": tuple(turn["action_logprobs"]),
                "action": ActionKind(turn["action"]),
            }
        )
        for turn in data["turns"]
    )
    rest = {
        entry.name: data[entry.name]
        for entry in dataclasses.fields(Episode)
        if entry.name not in ("turns", "stop", "closing_ids", "gold_answers")
    }
    return Episode(
        **rest,
        turns=turns,
        stop=StopReason(data["stop"]),
        closing_ids=tuple(data["closing_ids"]),
        gold_answers=tuple(data["gold_answers"]),
    )


def read_episodes(path: Path) -> list[Episode]:
    """Episodes of a file that `RunLog.episodes` wrote.

    Raises:
        ConfigError: if a line of the file is no such episode.
    """
    episodes = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            episodes.append(episode_from_dict(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"episodes: line {number} of {path} is no recorded episode ({error}); expected a file of a run's"
                " episodes folder"
            ) from error
    return episodes


def mean(values: Iterable[float]) -> float:
    """Mean of what is there; NaN over nothing."""
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan
