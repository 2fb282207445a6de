"""REINFORCE++ and its baseline form: one normalisation over all sampled tokens of the batch (arXiv 2501.03262)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms.base import VARIANCE_FLOOR, Algorithm, discounted_returns, normalize, over_turns
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import number_field


@dataclass(frozen=True, kw_only=True)
class ReinforcePlusPlus(Algorithm):
    """A_{i,k} = whiten(G_{i,k}), G_{i,k} = Σ_{j≥k} γ^{j−k} r_{i,j}. No groups: an episode is compared with the whole
    batch.

    The return is carried over observations unchanged: they cost no discount and do not reset it.
    """

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")
    gamma: float = 1.0
    """γ per turn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number_field(self, "gamma", 0.0, 1.0)

    def __call__(self, table: TurnTable) -> Credit:
        returns = discounted_returns(table.reward.where(table.mask, 0.0), self.gamma)
        return Credit.of(whiten(returns, table.num_tokens.where(table.mask, 0)))


@dataclass(frozen=True, kw_only=True)
class ReinforcePlusPlusBaseline(Algorithm):
    """A_{i,k} = whiten(R_i − mean_g R): the group's mean as baseline, the batch's deviation as scale."""

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")

    def __call__(self, table: TurnTable) -> Credit:
        centred = normalize(table.outcome, table.group, table.mask.any(dim=1), "sample", divide=False)
        return Credit.of(whiten(over_turns(centred, table), table.num_tokens.where(table.mask, 0)))


def whiten(
    values: Float[Tensor, "episode turn"], num_tokens: Int[Tensor, "episode turn"]
) -> Float[Tensor, "episode turn"]:
    """(x − μ)/sqrt(σ² + 1e-8) over all tokens of the batch, each having its turn's value; σ² divides by the number of
    tokens less one.

    0 where a turn has no tokens, and everywhere if the batch has fewer than two.
    """
    weight = num_tokens.to(values.dtype)
    total = weight.sum()
    # measured from the smallest value, so that equal values give exact zeros
    height = values - values.where(num_tokens > 0, float("inf")).min().nan_to_num(posinf=0.0)
    centred = (height - (weight * height).sum() / total.clamp(min=1)).where(num_tokens > 0, 0.0)
    variance = (weight * centred.square()).sum() / (total - 1).clamp(min=1)
    return (centred / (variance + VARIANCE_FLOOR).sqrt()).where(total > 1, 0.0)
