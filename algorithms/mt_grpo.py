"""MT-GRPO: the first search's own reward joins the credit of the turns up to it (arXiv 2505.11821; public code
Multi-Turn-RL-Agent).
"""

from dataclasses import dataclass

from a2tgpo.algorithms.base import normalize, over_turns
from a2tgpo.algorithms.gain import GainAlgorithm
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import number_field

MT_GRPO_EPSILON = 1e-4


@dataclass(frozen=True, kw_only=True)
class MTGRPO(GainAlgorithm):
    """A_{i,k} = A^R_i + λ·A^T_i up to the first turn with a process reward, A^R_i after it; an episode without one gets
    A^{R+T}_i on all turns.

    A^R, A^T and A^{R+T} are outcome, process reward and their sum, each normalised within the group (sample deviation,
    ε = 1e-4); A^T among the episodes that have a process reward, and A^{R+T} among all, where such an episode adds
    nothing to its outcome.
    """

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")
    turn_weight: float = 1.0
    """λ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number_field(self, "turn_weight", low=0.0)

    def __call__(self, table: TurnTable) -> Credit:
        everyone, rewarded = table.mask.any(dim=1), table.scored.any(dim=1)
        seen_before = table.scored.cumsum(dim=1) - table.scored.long()
        first = table.scored & (seen_before == 0)
        turn_reward = table.information_gain.where(first, 0.0).sum(dim=1)
        outcome_term = normalize(table.outcome, table.group, everyone, "sample", epsilon=MT_GRPO_EPSILON)
        turn_term = normalize(
            turn_reward, table.group, rewarded, "sample", epsilon=MT_GRPO_EPSILON, floor=self.gain_floor
        )
        combined = normalize(table.outcome + turn_reward, table.group, everyone, "sample", epsilon=MT_GRPO_EPSILON)
        advantage = over_turns(outcome_term, table) + (self.turn_weight * over_turns(turn_term, table)).where(
            seen_before == 0, 0.0
        )
        return Credit.of(advantage.where(rewarded[:, None], over_turns(combined, table)))
