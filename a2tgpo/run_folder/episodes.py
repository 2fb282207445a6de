"""Recorded episodes as JSON lines, with the text of every token and the credit of every turn."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from a2tgpo.batch import Credit
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError
from a2tgpo.files import nulls, read_json_lines

_T = TypeVar("_T", Turn, Episode)
CREDIT = ("advantage", "clip_scale", "weight")
VALUES = ("value_before", "value_after")


def episode_to_dict(
    episode: Episode,
    tokenizer: Any,
    credit: Credit | None,
    row: int | None,
    values: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """An episode as JSON: all its fields, the text of every token, and per turn its credit and the gold answer's
    values, from row `row` of `credit` and `values`; without a row it has neither.
    """
    data = _fields(episode)
    data["closing_text"] = tokenizer.decode(list(episode.closing_ids))
    data["turns"] = []
    for index, turn in enumerate(episode.turns):
        texts = {
            "context_text": tokenizer.decode(list(turn.context_ids)),
            "action_texts": tokenizer.batch_decode([[token] for token in turn.action_ids]),
        }
        said: dict[str, float] = {}
        if row is not None and credit is not None:
            said |= {name: float(getattr(credit, name)[row, index]) for name in CREDIT}
        if row is not None and values is not None:
            said |= dict(zip(VALUES, values[row][index : index + 2], strict=True))
        data["turns"].append(_fields(turn) | texts | said)
    plain: dict[str, Any] = nulls(data)
    return plain


def episode_from_dict(data: Mapping[str, Any]) -> Episode:
    """Inverse of `episode_to_dict`; the texts and the credit are left aside."""
    given = _with_info(data)
    turns = tuple(_made(Turn, _with_info(turn), {"action": ActionKind(turn["action"])}) for turn in data["turns"])
    ended = given.get("ended")
    parsed = {
        "turns": turns,
        "stop": StopReason(data["stop"]),
        "ended": StopReason(ended) if ended else None,
        "score": math.nan if given.get("score") is None else given["score"],
    }
    return _made(Episode, given, parsed)


def _fields(record: Turn | Episode) -> dict[str, Any]:
    return {entry.name: getattr(record, entry.name) for entry in dataclasses.fields(record)}


def _with_info(data: Mapping[str, Any]) -> dict[str, Any]:
    """Files written before version 0.1 keep some fields in `info`, and call the score its outcome."""
    info = data.get("info", {})
    return {**info, **({"score": info["outcome"]} if "outcome" in info else {}), **data}


def _made(kind: type[_T], data: Mapping[str, Any], parsed: dict[str, Any]) -> _T:
    """A record from those entries that are its fields; JSON lists are tuples here."""
    names = [entry.name for entry in dataclasses.fields(kind)]
    plain = {name: tuple(data[name]) if isinstance(data[name], list) else data[name] for name in names if name in data}
    return kind(**(plain | parsed))  # type: ignore[arg-type]  # each field has its own type


def recorded_credit(path: Path) -> list[list[dict[str, float]]]:
    """The credit of every turn of every episode of such a file, by the names in `CREDIT`; empty where none was
    recorded.
    """
    return [
        [{name: turn[name] for name in CREDIT if turn.get(name) is not None} for turn in row["turns"]]
        for row in read_json_lines(path)
    ]


def read_episodes(path: Path) -> list[Episode]:
    """Episodes of a file that `RunLog.episodes` wrote.

    Raises:
        ConfigError: if a line of the file is no such episode.
    """
    episodes = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            episodes.append(episode_from_dict(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"episodes: line {number} of {path} is no recorded episode ({error}); expected a file of a run's"
                " episodes folder"
            ) from error
    return episodes
