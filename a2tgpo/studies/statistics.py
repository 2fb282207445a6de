"""What a difference between two contenders is worth: intervals, tests and the smallest difference that a study can see.

Scores are matrices [seed, question]: every contender plays the same questions with the same seeds, so all is computed
on paired differences. Two things vary from study to study, the seeds and the questions, and they cross: every seed
meets every question. The interval is a hierarchical bootstrap over both. Its draws alone would be too narrow for a
handful of seeds, since resampling n values has only (n − 1)/n of their variance, and no bootstrap knows the tails of
three values. They are therefore widened to the variance of the crossed two-way layout (unbiased) and to Student's
quantile with the matching degrees of freedom (Satterthwaite). The interval is symmetric: the skew of three values is
noise. `a2tgpo false-calls` measures what all this achieves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from a2tgpo.errors import ConfigError
from a2tgpo.means import LEVEL

Matrix = NDArray[np.float64]

POWER: Final = 0.8
"""Probability with which the smallest detectable difference is seen."""


@dataclass(frozen=True, slots=True)
class Variation:
    """Variance of a mean difference and where it comes from."""

    variance: float
    degrees: float
    """Degrees of freedom of Student's t."""

    @staticmethod
    def of(difference: Matrix) -> "Variation":
        """Of the mean over a matrix [seed, question], both being samples. With one seed only the questions can be taken
        into account.
        """
        n, m = difference.shape
        by_seed, by_question, grand = difference.mean(axis=1), difference.mean(axis=0), difference.mean()
        questions = _variance(by_question) / m
        if n == 1:
            return Variation(questions, m - 1.0)
        seeds = _variance(by_seed) / n
        rest = difference - by_seed[:, None] - by_question + grand
        # is in both terms, but belongs into the sum once
        shared = float((rest**2).sum()) / max(1, (n - 1) * (m - 1)) / (n * m)
        return Variation(seeds + max(0.0, questions - shared), n - 1.0)


@dataclass(frozen=True, slots=True)
class Resampling:
    """Bootstrap weights, drawn once and used for every comparison of a shape."""

    seeds: Matrix
    """[draw, seed] shares that sum to 1."""
    questions: Matrix
    """[draw, question] shares that sum to 1; one draw for all seeds, since all met the same questions."""

    @staticmethod
    def of(seeds: int, questions: int, draws: int, rng: np.random.Generator) -> "Resampling":
        return Resampling(
            *(rng.multinomial(size, np.full(size, 1 / size), size=draws) / size for size in (seeds, questions))
        )

    def means(self, matrix: Matrix) -> Matrix:
        """Weighted means [draw] of a matrix [seed, question]."""
        return np.asarray(((self.seeds @ matrix) * self.questions).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean paired difference, first minus second, in units of the score."""

    mean: float
    low: float
    high: float
    """95 % interval."""
    p_value: float
    """Two-sided, Student t with the variance and degrees of freedom of `Variation`; NaN with one seed."""
    detectable: float
    """Smallest true difference that a study of this size and noise sees with 80 % probability; NaN with one seed."""
    standard_error: float
    seeds: int
    questions: int


def paired_difference(first: Matrix, second: Matrix, resampling: Resampling) -> Difference:
    """Compare two matrices [seed, question] of the same seeds and questions.

    Raises:
        ConfigError: if their shapes differ, are empty, or do not fit the resampling, or a score is not finite.
    """
    if (
        first.shape != second.shape
        or first.size == 0
        or first.shape != (resampling.seeds.shape[1], resampling.questions.shape[1])
    ):
        raise ConfigError(
            f"scores: got shapes {first.shape} and {second.shape}, expected twice the same seeds and questions, at"
            " least one of each"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ConfigError("scores: got a value that is not finite, expected numbers; leave such runs out")
    matrix = first - second
    n, m = matrix.shape
    variation, mean = Variation.of(matrix), float(matrix.mean())
    error, quantile = math.sqrt(variation.variance), float(stats.t.ppf(1 - LEVEL / 2, max(1.0, variation.degrees)))
    deviations = resampling.means(matrix) - mean
    spread = float(deviations.std())
    widening = error * quantile / (spread * float(stats.norm.ppf(1 - LEVEL / 2))) if spread > 0 else 0.0
    half = float(np.quantile(np.abs(deviations), 1 - LEVEL)) * widening
    low, high = mean - half, mean + half
    if n == 1:
        return Difference(mean, low, high, math.nan, math.nan, error, n, m)
    detectable = error * (quantile + float(stats.t.ppf(POWER, max(1.0, variation.degrees))))
    return Difference(mean, low, high, _p_value(mean, error, variation.degrees), detectable, error, n, m)


def _p_value(mean: float, error: float, degrees: float) -> float:
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / error, max(1.0, degrees)))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """Probability that a run of the first scores higher than a run of the second, over all pairs of runs; ties count
    half.
    """
    return float(stats.mannwhitneyu(first, second).statistic) / (len(first) * len(second))


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact test on two models' right and wrong answers to the same questions."""

    only_first: int
    """Questions that only the first got right."""
    only_second: int
    p_value: float

    @staticmethod
    def of(first: Matrix, second: Matrix) -> "McNemar":
        """Of two vectors [question]; right is a score of 1."""
        only_first, only_second = int(((first == 1) & (second != 1)).sum()), int(((first != 1) & (second == 1)).sum())
        total = only_first + only_second
        return McNemar(only_first, only_second, float(stats.binomtest(only_first, total).pvalue) if total else 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment over a family of comparisons; NaN stays NaN and does not count."""
    order = sorted(
        (index for index, value in enumerate(p_values) if not math.isnan(value)), key=lambda index: p_values[index]
    )
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean without the lowest and highest quarter; with fewer than four values nothing can be left out and it is the
    mean.
    """
    return float(stats.trim_mean(values, 0.25)) if len(values) else math.nan


def _variance(values: Matrix) -> float:
    return float(values.var(ddof=1)) if values.size > 1 else 0.0
