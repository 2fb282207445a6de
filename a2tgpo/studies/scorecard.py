"""An evaluation summed up: means, pass@k, mean@k, calibration, per hops and question type; as table, CSV and JSON
lines.

Everything is computed from rows, one per question and sample, whoever played them: `Evaluation.rows` of a policy,
`Played.row` of a reference agent.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import comb

from a2tgpo.files import write_csv, write_json, write_json_lines
from a2tgpo.means import Interval, mean

ResultRow = Mapping[str, Any]
MEANS = ("em", "f1", "answered", "searches", "turns", "tokens")
BINS = 10


@dataclass(frozen=True, slots=True)
class PartScores:
    """Scores of one part of the questions."""

    dataset: str
    part: str
    """`all`, `2 hops`, `type bridge`, …"""
    questions: int
    values: dict[str, float]
    """Means over questions (`em` is mean@k when there are k samples), `em_half` = half of EM's 95 % interval over
    questions, and `pass@k`.
    """


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well the gold answer's probability just before the end predicts a right answer."""

    bins: tuple[tuple[float, float, int], ...]
    """(mean probability, share correct, episodes) of every bin that holds any; ten bins of equal width."""
    expected_error: float
    """Mean distance between the two, weighted by episodes (ECE)."""
    brier: float
    """Mean squared distance between probability and outcome."""


def lines_of(dataset: str, rows: Sequence[ResultRow]) -> list[PartScores]:
    """All questions of a data set, then by hops, then by type (parts of one kind only where there are at least two)."""
    found = [_line(dataset, "all", rows)]
    for name, title in (("hops", "{} hops"), ("type", "type {}")):
        keys = sorted({row[name] for row in rows if row.get(name)})
        if len(keys) > 1:
            found += [_line(dataset, title.format(key), [row for row in rows if row.get(name) == key]) for key in keys]
    return found


def _line(dataset: str, part: str, rows: Sequence[ResultRow]) -> PartScores:
    played = [dict(row) | {"answered": float(row["stop"] == "answered")} for row in rows if row["stop"] != "failed"]
    by_question: dict[str, list[float]] = {}
    for row in played:
        by_question.setdefault(row["question_id"], []).append(float(row["em"]))
    spread = Interval.over_questions([float(np.mean(found)) for found in by_question.values()])
    values = {}
    for name in MEANS:
        values[name] = mean(float(row[name]) for row in played)
        values |= {"em_half": spread.half} if name == "em" else {}
    samples = min((len(found) for found in by_question.values()), default=0)
    for k in (number for number in (2, 4, 8, 16, 32, 64) if number <= samples):
        values[f"pass@{k}"] = mean(pass_at(k, len(found), round(sum(found))) for found in by_question.values())
    return PartScores(dataset, part, len(by_question), values)


def pass_at(k: int, samples: int, correct: int) -> float:
    """Unbiased probability that at least one of k samples is right: 1 − C(n − c, k)/C(n, k) (arXiv 2107.03374, equation
    1).
    """
    return 1 - float(comb(samples - correct, k) / comb(samples, k))


def calibration_of(rows: Sequence[ResultRow]) -> Calibration | None:
    """Over the rows with a `gold_probability`; `None` without any."""
    pairs = [
        (float(row["gold_probability"]), float(row["em"])) for row in rows if row.get("gold_probability") is not None
    ]
    if not pairs:
        return None
    probability, right = np.array(pairs).T
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    bins = tuple(
        (float(probability[place == b].mean()), float(right[place == b].mean()), int((place == b).sum()))
        for b in sorted(set(place.tolist()))
    )
    error = sum(abs(share - predicted) * count for predicted, share, count in bins) / len(pairs)
    return Calibration(bins, error, float(((probability - right) ** 2).mean()))


def fingerprint(rows: Sequence[ResultRow]) -> str:
    """Hash of all results: equal for equal results, so that a greedy evaluation can be checked to be repeatable."""
    return hashlib.sha256(
        json.dumps([dict(row) for row in rows], sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()[:16]


def write_scorecard(folder: Path, rows: Mapping[str, Sequence[ResultRow]], described: Mapping[str, Any]) -> None:
    """Write `evaluation.jsonl` (one line per question and sample), `evaluation.csv` (one line per part) and
    `evaluation.json` (means, calibration, origin).
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json_lines(
        folder / "evaluation.jsonl", ({"dataset": name} | dict(row) for name, found in rows.items() for row in found)
    )
    lines = [line for name, found in rows.items() for line in lines_of(name, found)]
    names = list(dict.fromkeys(name for line in lines for name in line.values))
    write_csv(
        folder / "evaluation.csv",
        ["dataset", "part", "questions", *names],
        ([line.dataset, line.part, line.questions, *(line.values.get(name) for name in names)] for line in lines),
    )
    sets = {}
    for name, found in rows.items():
        calibration = calibration_of(found)
        sets[name] = {
            "means": lines_of(name, found)[0].values,
            "calibration": None if calibration is None else asdict(calibration),
            "fingerprint": fingerprint(found),
        }
    write_json(folder / "evaluation.json", {**described, "datasets": sets})
