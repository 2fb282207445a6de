"""GRPO and the methods that share its estimator: one number per episode, the outcome compared with its group's."""

from dataclasses import dataclass

from a2tgpo.algorithms.base import Algorithm, group_moments, normalize, over_turns
from a2tgpo.algorithms.checks import check_choice, check_flag
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.batch import Credit, TurnTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPO(Algorithm):
    """A_{i,k} = (R_i − mean_g R) / (std_g R + 1e-6), the same for all turns k (DeepSeekMath, arXiv 2402.03300; sample deviation as in verl)."""

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")
    normalize_std: bool = True
    """Divide by the group's standard deviation?"""
    singleton: str = "zero"
    """Credit of a group of one, which has nothing to compare with: `zero`, or `raw` = the outcome itself, as in verl."""

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_flag(self, "normalize_std")
        check_choice(self, "singleton", ("zero", "raw"))

    def __call__(self, table: TurnTable) -> Credit:
        everyone = table.mask.any(dim=1)
        advantage = normalize(table.outcome, table.group, everyone, "sample", divide=self.normalize_std)
        if self.singleton == "raw":
            _, _, size = group_moments(table.outcome, table.group, everyone, "sample")
            advantage = advantage.where(size > 1, table.outcome)
        return Credit.of(over_turns(advantage, table))
