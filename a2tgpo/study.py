"""A study on disk: which runs it has, and what they say together."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats

from a2tgpo.config import Recipe
from a2tgpo.runlog import mean, read_metrics

TABLE = ("em", "f1", "searches", "gain_per_turn", "seconds")
"""Columns of the final table: exact match and F1 (0 … 1), searches per question, information gain per scored turn (nats), seconds of the run."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a study."""

    recipe: Recipe
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def finished(self) -> bool:
        return (self.folder / "finished").exists()


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean over seeds with its 95 % Student-t interval; NaN bounds with fewer than two seeds."""

    mean: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Interval":
        kept = [value for value in values if not math.isnan(value)]
        if len(kept) < 2:
            return Interval(mean(kept), math.nan, math.nan, len(kept))
        half = float(stats.t.ppf(0.975, len(kept) - 1)) * float(np.std(kept, ddof=1)) / math.sqrt(len(kept))
        return Interval(mean(kept), mean(kept) - half, mean(kept) + half, len(kept))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.low) else f"{self.mean:.3f} ± {self.high - self.mean:.3f}"


def jobs_of(recipe: Recipe, study_folder: Path) -> list[Job]:
    """Every algorithm with every seed; seed by seed, so that a study that is stopped early is still balanced."""
    return [
        Job(replace(recipe, algorithm=algorithm, seed=seed), study_folder / f"{label(algorithm)}-s{seed}")
        for seed in recipe.study.seeds
        for algorithm in recipe.study.algorithms
    ]


def label(algorithm: str) -> str:
    """Short name of an algorithm: that of its class where it comes from a file."""
    return algorithm.rpartition(":")[2]


def algorithms_of(jobs: Sequence[Job]) -> list[str]:
    """Labels of the study's algorithms, in the recipe's order."""
    return list(dict.fromkeys(label(job.recipe.algorithm) for job in jobs))


def final_values(jobs: Sequence[Job]) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(algorithm, seed, last evaluation with the run's seconds) of every finished run."""
    for job in jobs:
        evaluations = read_metrics(job.folder, "evaluation")
        if job.finished and evaluations:
            yield label(job.recipe.algorithm), job.recipe.seed, {**evaluations[-1], "seconds": run_seconds(job.folder)}


def run_seconds(folder: Path) -> float:
    """Wall-clock seconds of training and evaluation, start-up left out."""
    return float(sum(value for row in read_metrics(folder) for name, value in row.items() if name.startswith("seconds_")))


def curve(jobs: Sequence[Job], algorithm: str, metric: str, kind: str = "evaluation") -> dict[int, list[float]]:
    """Step → the metric of every run of an algorithm that has reached it."""
    points: dict[int, list[float]] = {}
    for job in jobs:
        if label(job.recipe.algorithm) == algorithm:
            for row in read_metrics(job.folder, kind):
                if metric in row:
                    points.setdefault(int(row["step"]), []).append(row[metric])
    return dict(sorted(points.items()))


def table(jobs: Sequence[Job]) -> dict[str, dict[str, Interval]]:
    """Algorithm → column → interval over its finished runs."""
    rows = list(final_values(jobs))
    return {
        algorithm: {column: Interval.of([values.get(column, math.nan) for name, _, values in rows if name == algorithm]) for column in TABLE}
        for algorithm in algorithms_of(jobs)
    }
