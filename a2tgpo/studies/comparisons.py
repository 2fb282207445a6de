"""Contenders against their baselines, question by question, on the last evaluation of their runs."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from a2tgpo.config import Recipe
from a2tgpo.files import read_json_lines
from a2tgpo.means import LEVEL, mean
from a2tgpo.studies.contenders import contenders_of
from a2tgpo.studies.statistics import (
    Difference,
    Matrix,
    McNemar,
    Resampling,
    holm,
    interquartile_mean,
    paired_difference,
    probability_of_improvement,
)
from a2tgpo.studies.study import Job

DRAWS = 10_000
_LARGE = 2_000_000
"""Draws × questions above which fewer draws are made."""

Row = Mapping[str, Any]
"""What an evaluation says of one question (`Evaluation.rows`)."""
Results = dict[int, dict[str, Row]]
"""Of one contender: seed → question id → row."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One contender against its baseline, on the questions that all of their runs have played."""

    contender: str
    baseline: str
    ablation: bool
    difference: Difference
    p_holm: float
    """p-value adjusted over all comparisons of the study; NaN with one seed."""
    improvement: float
    """Probability that a run of the contender scores higher than one of the baseline."""
    mcnemar: dict[int, McNemar]
    """Seed → test between that seed's two models; empty for scores that are not right or wrong."""
    left_out: int
    """Questions that some of these runs have not played."""

    @property
    def distinguishable(self) -> bool:
        return not self.difference.low <= 0 <= self.difference.high and self.p_holm < LEVEL


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a study."""

    metric: str
    comparisons: tuple[Comparison, ...]
    interquartile_means: dict[str, float]
    """Label → interquartile mean over seeds."""
    omitted: tuple[str, ...]
    """Why a comparison that the study wants could not be made."""
    lacking: dict[str, int]
    """Name of a run → questions that another run has played and this one has not; without those that lack none."""

    @property
    def detectable(self) -> float:
        """Smallest difference that every comparison of the study would have seen; NaN if there is none."""
        values = [comparison.difference.detectable for comparison in self.comparisons]
        return max(values, default=math.nan) if all(value == value for value in values) else math.nan


@dataclass(frozen=True, slots=True)
class QuestionScores:
    """One question as the runs of two contenders answered it."""

    row: Row
    """Of the contender's first run: what does not depend on the run."""
    contender: tuple[Row, ...]
    """One row per seed."""
    baseline: tuple[Row, ...]

    def difference(self, metric: str) -> float:
        """Mean score of the contender less that of the baseline."""
        return mean(float(row[metric]) for row in self.contender) - mean(float(row[metric]) for row in self.baseline)


def results_of(jobs: Sequence[Job]) -> dict[str, Results]:
    """Label → the last evaluation of its runs, which must be usable."""
    found: dict[str, Results] = {}
    for job in jobs:
        if files := sorted((job.folder / "evaluations").glob("step-*.jsonl")):
            rows = {str(row["question_id"]): row for row in read_json_lines(files[-1])}
            found.setdefault(job.label, {})[job.recipe.seed] = rows
    return found


def statistics_of(recipe: Recipe, jobs: Sequence[Job], metric: str = "em") -> Statistics:
    """Compare every contender with its baseline.

    Args:
        recipe: of the study.
        jobs: its usable runs.
        metric: a score of every question.
    """
    results = results_of(jobs)
    raw, omitted = [], []
    cache: dict[tuple[int, int], Resampling] = {}
    for contender in contenders_of(recipe):
        label, baseline = contender.label, contender.baseline
        if label == baseline:
            continue
        made = _compare(results, label, baseline, contender.ablation, metric, cache)
        if made is None:
            omitted.append(
                f"{label} against {baseline}: no seed with a finished run of both, so there is nothing to compare"
            )
        else:
            raw.append(made)
    adjusted = holm([comparison.difference.p_value for comparison in raw])
    comparisons = tuple(
        dataclasses.replace(comparison, p_holm=value) for comparison, value in zip(raw, adjusted, strict=True)
    )
    middle = {
        label: interquartile_mean([float(np.mean([row[metric] for row in rows.values()])) for rows in runs.values()])
        for label, runs in results.items()
    }
    return Statistics(metric, comparisons, middle, tuple(omitted), _lacking(results))


def questions_of(results: Mapping[str, Results], comparison: Comparison) -> list[QuestionScores]:
    """The questions that a comparison rests on."""
    first, second = results[comparison.contender], results[comparison.baseline]
    seeds, common, _ = _common(first, second)
    return [
        QuestionScores(
            first[seeds[0]][question],
            tuple(first[seed][question] for seed in seeds),
            tuple(second[seed][question] for seed in seeds),
        )
        for question in common
    ]


def _common(first: Results, second: Results) -> tuple[list[int], list[str], int]:
    """Seeds of both, questions that all runs with these seeds have played, and how many others there are."""
    seeds = [seed for seed in first if seed in second]
    runs = [results[seed] for results in (first, second) for seed in seeds]
    common = [question for question in (runs[0] if runs else ()) if all(question in run for run in runs)]
    return seeds, common, len({question for run in runs for question in run}) - len(common)


def _compare(
    results: Mapping[str, Results],
    label: str,
    baseline: str,
    ablation: bool,
    metric: str,
    cache: dict[tuple[int, int], Resampling],
) -> Comparison | None:
    first, second = results.get(label, {}), results.get(baseline, {})
    seeds, questions, left_out = _common(first, second)
    if not questions:
        return None
    left, right = (_matrix(found, seeds, questions, metric) for found in (first, second))
    size = len(seeds), len(questions)
    if size not in cache:
        cache[size] = Resampling.of(*size, _draws(len(questions)), np.random.default_rng(0))
    mcnemar = {seed: McNemar.of(left[row], right[row]) for row, seed in enumerate(seeds)} if metric == "em" else {}
    improvement = probability_of_improvement(list(left.mean(axis=1)), list(right.mean(axis=1)))
    difference = paired_difference(left, right, cache[size])
    return Comparison(label, baseline, ablation, difference, math.nan, improvement, mcnemar, left_out)


def _lacking(results: Mapping[str, Results]) -> dict[str, int]:
    everything = {question for runs in results.values() for rows in runs.values() for question in rows}
    return {
        f"{label}-s{seed}": len(everything) - len(rows)
        for label, runs in results.items()
        for seed, rows in runs.items()
        if len(rows) < len(everything)
    }


def _draws(questions: int) -> int:
    return max(1000, min(DRAWS, _LARGE // questions))


def _matrix(found: Results, seeds: Sequence[int], questions: Sequence[str], metric: str) -> Matrix:
    return np.array([[float(found[seed][question][metric]) for question in questions] for seed in seeds])
