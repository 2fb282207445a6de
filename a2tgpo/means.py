"""The mean of what is there, and how far it can be trusted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

LEVEL = 0.05
"""Two-sided level of all intervals and calls."""
FEWEST_SEEDS = 3
"""Two seeds that happen to agree would show an interval of width 0, two that do not one wider than the scale."""
FEWEST_QUESTIONS = 20
"""Below this the normal distribution would claim too much."""


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are numbers; NaN over none."""
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, which is symmetric."""

    mean: float
    half: float
    """Half of the interval's width; NaN where there are too few values for one."""
    count: int

    @staticmethod
    def over_seeds(values: Sequence[float]) -> "Interval":
        """Student's t over runs that differ in their seed, from `FEWEST_SEEDS` on; NaN is left out."""
        kept = [value for value in values if not math.isnan(value)]
        if len(kept) < FEWEST_SEEDS:
            return Interval(mean(kept), math.nan, len(kept))
        return _interval(kept, float(special.stdtrit(len(kept) - 1, 1 - LEVEL / 2)))

    @staticmethod
    def over_questions(values: Sequence[float]) -> "Interval":
        """The normal distribution's over questions, from `FEWEST_QUESTIONS` on; NaN is left out."""
        kept = [value for value in values if not math.isnan(value)]
        if len(kept) < FEWEST_QUESTIONS:
            return Interval(mean(kept), math.nan, len(kept))
        return _interval(kept, float(special.ndtri(1 - LEVEL / 2)))

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def __format__(self, spec: str) -> str:
        return format(self.mean, spec) if math.isnan(self.half) else f"{self.mean:{spec}} ± {self.half:{spec}}"


def _interval(values: Sequence[float], quantile: float) -> Interval:
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean(values), half, len(values))
