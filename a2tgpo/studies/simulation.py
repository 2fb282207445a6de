"""How often the statistics call a difference where there is none: studies of one algorithm under several names,
simulated.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from a2tgpo.errors import ConfigError
from a2tgpo.means import LEVEL
from a2tgpo.studies.statistics import Matrix, Resampling, holm, paired_difference


@dataclass(frozen=True, slots=True)
class Noise:
    """How simulated scores vary. Shares of right answers are uniform over questions' difficulties; all deviations are
    on the logit scale.
    """

    mean: float = 0.0
    question: float = 1.5
    """Deviation of a question's difficulty, the same for all runs."""
    seed: float = 0.3
    """Deviation of a run's skill."""
    interaction: float = 1.0
    """Deviation of a run's skill at one question."""


@dataclass(frozen=True, slots=True)
class CallRate:
    """Share of simulated studies or comparisons in which a difference was called."""

    calls: int
    trials: int

    @property
    def rate(self) -> float:
        return self.calls / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval (Wilson)."""
        found = stats.binomtest(self.calls, self.trials).proportion_ci(0.95, method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.1%} ({self.calls} of {self.trials}; 95 % interval {low:.1%} … {high:.1%})"


@dataclass(frozen=True, slots=True)
class CallRates:
    """Of a simulation."""

    comparisons: CallRate
    """Per comparison, before Holm's correction: the interval does not hold 0 and p < 0.05."""
    studies: CallRate
    """Studies with at least one call after Holm's correction; what the words of a report rest on."""


def simulate(
    *,
    studies: int,
    seeds: int,
    questions: int,
    contenders: int = 2,
    effect: float = 0.0,
    noise: Noise | None = None,
    draws: int = 400,
    seed: int = 0,
) -> CallRates:
    """Call rates over simulated studies, the first contender being the baseline.

    Args:
        effect: skill (logits) that the others really have over the baseline; 0 makes every call a false one.
        draws: of the bootstrap, per study.
    """
    if min(studies, questions) < 1 or seeds < 2 or contenders < 2:
        raise ConfigError(
            f"false calls: got {studies} studies, {seeds} seeds, {questions} questions, {contenders} contenders;"
            " expected 1, 2, 1 and 2 at least"
        )
    rng, noise = np.random.default_rng(seed), noise or Noise()
    single = called = 0
    for _ in range(studies):
        difficulty = rng.normal(noise.mean, noise.question, size=questions)
        scores = [_scores(rng, noise, seeds, difficulty, effect if index else 0.0) for index in range(contenders)]
        resampling = Resampling.of(seeds, questions, draws, rng)
        found = [paired_difference(other, scores[0], resampling) for other in scores[1:]]
        adjusted = holm([difference.p_value for difference in found])
        apart = [not difference.low <= 0 <= difference.high for difference in found]
        single += sum(out and difference.p_value < LEVEL for out, difference in zip(apart, found, strict=True))
        called += any(out and p_value < LEVEL for out, p_value in zip(apart, adjusted, strict=True))
    return CallRates(CallRate(single, studies * (contenders - 1)), CallRate(called, studies))


def _scores(rng: np.random.Generator, noise: Noise, seeds: int, difficulty: Matrix, skill: float) -> Matrix:
    """Right (1) or wrong (0) [seed, question]."""
    logits = (
        difficulty
        + skill
        + rng.normal(0, noise.seed, size=(seeds, 1))
        + rng.normal(0, noise.interaction, size=(seeds, difficulty.size))
    )
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.float64)
