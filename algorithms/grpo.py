"""GRPO and the methods that share its estimator: one number per episode, the outcome compared with its group's."""

from dataclasses import dataclass, replace

from a2tgpo.algorithms.base import Algorithm, group_moments, normalize, outcome_workings, over_turns
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import choice_field, flag_field


@dataclass(frozen=True, kw_only=True)
class GRPO(Algorithm):
    """A_{i,k} = (R_i − mean_g R) / (std_g R + 1e-6), the same for all turns k (DeepSeekMath, arXiv 2402.03300; sample
    deviation as in verl). The loss is verl's habit: token mean, no distance to a reference.
    """

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean")
    normalize_std: bool = True
    """Divide by the group's standard deviation?"""
    singleton: str = "zero"
    """Credit of a group of one, which has nothing to compare with: `zero`, or `raw` = the outcome itself, as in verl.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        flag_field(self, "normalize_std")
        choice_field(self, "singleton", ("zero", "raw"))

    def __call__(self, table: TurnTable) -> Credit:
        everyone = table.mask.any(dim=1)
        advantage = normalize(table.outcome, table.group, everyone, "sample", divide=self.normalize_std)
        if self.singleton == "raw":
            _, _, size = group_moments(table.outcome, table.group, everyone, "sample")
            advantage = advantage.where(size > 1, table.outcome)
        return Credit.of(over_turns(advantage, table))

    def workings(self, table: TurnTable) -> Workings:
        workings = outcome_workings(table, "sample", divide=self.normalize_std)
        if self.singleton == "zero":
            return workings
        _, _, size = group_moments(table.outcome, table.group, table.mask.any(dim=1), "sample")
        alone = over_turns((size == 1).float(), table)
        columns = dict(workings.columns)
        # a group of one keeps its outcome: nothing is taken off and nothing divides it
        columns["mean"], columns["std"] = columns["mean"].where(alone == 0, 0.0), columns["std"].where(alone == 0, 1.0)
        return replace(workings, columns=columns, formulas=(*workings.formulas, "a group of one keeps its outcome"))


@dataclass(frozen=True, kw_only=True)
class DeepSeekMathGRPO(GRPO):
    """GRPO with the loss of the paper that introduced it: every sequence divided by its own length, and the distance to
    the reference (k3, 0.04). The paper prints no clip width; 0.2 is PPO's.
    """

    loss: LossSpec = LossSpec(
        ratio="token",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="seq-mean-token-mean",
        kl="k3",
        kl_coefficient=0.04,
    )


@dataclass(frozen=True, kw_only=True)
class DrGRPO(GRPO):
    """GRPO without its two biases: A = R − mean_g R, and a constant instead of each sequence's length as divisor, so
    that the loss is Σ / (rows · constant) (arXiv 2503.20783).
    """

    loss: LossSpec = LossSpec(
        ratio="token", clip_low=0.2, clip_high=0.2, aggregation="seq-mean-token-sum-norm", divisor=3000.0
    )
    normalize_std: bool = False


@dataclass(frozen=True, kw_only=True)
class GSPO(GRPO):
    """GRPO's credit, trained with one ratio per sequence and narrow clip widths (arXiv 2507.18071)."""

    loss: LossSpec = LossSpec(ratio="sequence", clip_low=3e-4, clip_high=4e-4, aggregation="seq-mean-token-mean")


@dataclass(frozen=True, kw_only=True)
class CISPO(GRPO):
    """GRPO's credit, trained with a clipped importance weight that never stops a token's gradient (MiniMax-M1, arXiv
    2506.13585).

    The paper sets no lower bound (here: clip_low 1, as ratios are positive) and does not print its upper one; 0.28 is
    the width of DAPO.
    """

    loss: LossSpec = LossSpec(ratio="token", surrogate="cispo", clip_low=1.0, clip_high=0.28, aggregation="token-mean")
