"""What a study's numbers say, in numbers and in words that follow from them."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from a2tgpo.config import Recipe
from a2tgpo.files import read_json_lines
from a2tgpo.means import LEVEL
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
from a2tgpo.studies.study import Job, labels_of, usable

DRAWS = 10_000
_LARGE = 2_000_000
"""Draws × questions above which fewer draws are made."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Final scores of one contender."""

    label: str
    by_seed: dict[int, dict[str, float]]
    """Seed → question id → score."""

    @property
    def means(self) -> dict[int, float]:
        return {seed: float(np.mean(list(values.values()))) for seed, values in self.by_seed.items()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One contender against its baseline."""

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

    @property
    def detectable(self) -> float:
        """Smallest difference that every comparison of the study would have seen; NaN if there is none."""
        values = [comparison.difference.detectable for comparison in self.comparisons]
        return max(values, default=math.nan) if all(value == value for value in values) else math.nan


def statistics_of(recipe: Recipe, jobs: Sequence[Job], metric: str = "em") -> Statistics:
    """Compare every contender with its baseline on the last evaluation of the usable runs."""
    scores = {name: _scores(name, jobs, metric) for name in labels_of(jobs)}
    raw, omitted = [], []
    cache: dict[tuple[int, int], Resampling] = {}
    for contender in contenders_of(recipe):
        if contender.label == contender.baseline:
            continue
        made = _compare(scores[contender.label], scores[contender.baseline], contender.ablation, metric, cache)
        if made is None:
            omitted.append(
                f"{contender.label} against {contender.baseline}: no seed with a finished run of both, so there is"
                " nothing to compare"
            )
        else:
            raw.append(made)
    adjusted = holm([comparison.difference.p_value for comparison in raw])
    comparisons = tuple(
        dataclasses.replace(comparison, p_holm=value) for comparison, value in zip(raw, adjusted, strict=True)
    )
    middle = {name: interquartile_mean(list(found.means.values())) for name, found in scores.items() if found.by_seed}
    return Statistics(metric, comparisons, middle, tuple(omitted))


def sentence(comparison: Comparison) -> str:
    """One line: the difference, its interval and what may be said."""
    found = comparison.difference
    head = f"{comparison.contender} − {comparison.baseline}: {signed_points(found.mean)} points"
    size = f"{found.seeds} seed{'s' if found.seeds > 1 else ''} × {found.questions} questions"
    interval = f"95 % interval {signed_points(found.low)} … {signed_points(found.high)}"
    if found.seeds == 1:
        return (
            f"{head} ({size}): one seed, so nothing can be said about the algorithms; over questions alone the"
            f" {interval}"
        )
    if comparison.distinguishable:
        return (
            f"{head} ({interval}, {size}): {'better' if found.mean > 0 else 'worse'}, p = {_p(comparison.p_holm)} after"
            " Holm"
        )
    if not found.low <= 0 <= found.high:
        return (
            f"{head} ({interval}, {size}): not distinguishable once corrected for the number of comparisons, p ="
            f" {_p(comparison.p_holm)}"
        )
    return f"{head} ({interval}, {size}): not distinguishable"


def power_sentence(statistics: Statistics) -> str:
    """What the study could not have seen."""
    sizes = sorted(
        {(comparison.difference.seeds, comparison.difference.questions) for comparison in statistics.comparisons}
    )
    if not sizes:
        return "One contender, so there is nothing to compare."
    seeds, questions = sizes[0]
    if seeds == 1:
        return (
            "With one seed, luck of the seed and merit of the algorithm cannot be told apart, however many questions"
            " there are; use at least 3 seeds."
        )
    return (
        f"With {seeds} seeds × {questions} questions, differences under {100 * statistics.detectable:.1f} points cannot"
        " be seen (80 % power)."
    )


def words(statistics: Statistics) -> list[str]:
    """All sentences, ablations after the rest."""
    ordered = sorted(statistics.comparisons, key=lambda comparison: comparison.ablation)
    return [*(sentence(comparison) for comparison in ordered), *statistics.omitted, power_sentence(statistics)]


def as_json(statistics: Statistics) -> dict[str, Any]:
    """For `statistics.json`."""
    return dataclasses.asdict(statistics) | {"detectable": statistics.detectable, "words": words(statistics)}


def _compare(
    first: Scores, second: Scores, ablation: bool, metric: str, cache: dict[tuple[int, int], Resampling]
) -> Comparison | None:
    seeds = [seed for seed in first.by_seed if seed in second.by_seed]
    if not seeds:
        return None
    runs = [scores.by_seed[seed] for scores in (first, second) for seed in seeds]
    questions = [question for question in runs[0] if all(question in run for run in runs)]
    if not questions:
        return None
    left, right = (_matrix(scores, seeds, questions) for scores in (first, second))
    size = len(seeds), len(questions)
    if size not in cache:
        cache[size] = Resampling.of(*size, _draws(len(questions)), np.random.default_rng(0))
    mcnemar = {seed: McNemar.of(left[row], right[row]) for row, seed in enumerate(seeds)} if metric == "em" else {}
    improvement = probability_of_improvement(list(left.mean(axis=1)), list(right.mean(axis=1)))
    return Comparison(
        first.label, second.label, ablation, paired_difference(left, right, cache[size]), math.nan, improvement, mcnemar
    )


def _draws(questions: int) -> int:
    return max(1000, min(DRAWS, _LARGE // questions))


def _matrix(scores: Scores, seeds: Sequence[int], questions: Sequence[str]) -> Matrix:
    return np.array([[scores.by_seed[seed][question] for question in questions] for seed in seeds])


def _scores(name: str, jobs: Sequence[Job], metric: str) -> Scores:
    found = {}
    for job in usable(jobs):
        if job.label == name and (files := sorted((job.folder / "evaluations").glob("step-*.jsonl"))):
            found[job.recipe.seed] = {str(row["question_id"]): float(row[metric]) for row in read_json_lines(files[-1])}
    return Scores(name, found)


def signed_points(share: float) -> str:
    """A difference of shares as signed points of 100."""
    return f"{100 * share:+.1f}".replace("-", "−")


def _p(value: float) -> str:
    return "under 0.001" if value < 0.001 else f"{value:.3f}"
