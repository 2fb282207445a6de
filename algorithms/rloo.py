"""RLOO: each episode against the mean of the others (arXiv 2402.14740)."""

from dataclasses import dataclass

from a2tgpo.algorithms.base import Algorithm, group_moments, over_turns
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.batch import Credit, TurnTable


@dataclass(frozen=True, kw_only=True)
class RLOO(Algorithm):
    """A_i = R_i − mean of the other outcomes in the group = n/(n−1)·(R_i − mean_g R), the same for all turns; 0 for a
    group of one.
    """

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")

    def __call__(self, table: TurnTable) -> Credit:
        mean, _, size = group_moments(table.outcome, table.group, table.mask.any(dim=1), "sample")
        advantage = (table.outcome - mean) * size / (size - 1).clamp(min=1)
        return Credit.of(over_turns(advantage.where(size > 1, 0.0), table))
