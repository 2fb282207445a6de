"""What algorithms that credit information gain have in common: in which measure it enters the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from a2tgpo.algorithms.base import Algorithm
from a2tgpo.batch import TurnReward, TurnTable, information_gain_of, probability_gain_of, tabulate
from a2tgpo.checks import choice_field, number_field
from a2tgpo.episode import Episode

MEASURES: Final[Mapping[str, TurnReward]] = {"logprob": information_gain_of, "prob": probability_gain_of}
"""Measure of a gain → where it is recorded. Every scored turn has both, from one pass."""


@dataclass(frozen=True, kw_only=True)
class GainAlgorithm(Algorithm):
    """Base of algorithms that read the `information_gain` column."""

    needs_information_gain: ClassVar[bool] = True

    gain_measure: str = "logprob"
    """What a gain is a difference of: `logprob`, mean log-probabilities of the gold answer's tokens (nats), or `prob`,
    their exponentials. Logs and curves are in nats whatever is credited.
    """
    gain_floor: float = 0.0
    """Smallest deviation that gains are divided by, in their own measure; 0 = as published. In bfloat16, rounding alone
    makes gains differ (metric `gain_noise`), and divided by their own tiny spread such differences become credit.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        choice_field(self, "gain_measure", MEASURES)
        number_field(self, "gain_floor", 0.0)

    def tabulate(self, episodes: Sequence[Episode], turn_reward: TurnReward | None = None) -> TurnTable:
        return tabulate(episodes, turn_reward or MEASURES[self.gain_measure])
