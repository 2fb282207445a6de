"""DAPO: GRPO with a higher upper clip, a soft penalty on overlong episodes and batches of groups that teach something
(arXiv 2503.14476).
"""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms.base import over_turns
from a2tgpo.algorithms.grpo import GRPO
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import number_field, whole_field
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DAPO(GRPO):
    """GRPO's estimator on the outcome plus a length penalty. Which groups are kept is decided on the raw outcome,
    without the penalty.
    """

    loss: LossSpec = LossSpec(ratio="token", clip_low=0.2, clip_high=0.28, dual_clip=10.0, aggregation="token-mean")
    generation_batch: int = 3
    max_resamples: int = 10
    max_tokens: int = 20480
    """Length at which the penalty is complete, in tokens that the policy sampled in the episode."""
    overlong_buffer: int = 4096
    """The penalty grows over the last `overlong_buffer` tokens before `max_tokens`."""
    overlong_factor: float = 1.0
    """Size of the complete penalty; 0 = none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_field(self, "max_tokens", 1)
        whole_field(self, "overlong_buffer", 1)
        number_field(self, "overlong_factor", low=0.0)
        if self.overlong_buffer > self.max_tokens:
            raise ConfigError(
                f"DAPO.overlong_buffer: got {self.overlong_buffer}, expected at most max_tokens ({self.max_tokens})"
            )

    def __call__(self, table: TurnTable) -> Credit:
        return super().__call__(self.penalized(table))

    def penalized(self, table: TurnTable) -> TurnTable:
        """The table with the length penalty in its outcomes."""
        length = table.num_tokens.where(table.mask, 0).sum(dim=1)
        penalty = overlong_penalty(length, self.max_tokens, self.overlong_buffer, self.overlong_factor)
        return replace(table, outcome=table.outcome + penalty)

    def workings(self, table: TurnTable) -> Workings:
        workings = super().workings(self.penalized(table))
        score = over_turns(table.outcome, table)
        penalty = workings.columns["outcome"] - score
        formula = "outcome = score + penalty; the penalty is that of the episode's length"
        return replace(
            workings,
            columns={"score": score, "penalty": penalty, **workings.columns},
            formulas=(formula, *workings.formulas),
        )


def overlong_penalty(
    length: Int[Tensor, " episode"], max_tokens: int, overlong_buffer: int, overlong_factor: float
) -> Float[Tensor, " episode"]:
    """0 up to max_tokens − overlong_buffer, then linearly down to −overlong_factor at max_tokens (and beyond, for
    longer episodes).
    """
    excess = (length - (max_tokens - overlong_buffer)).float()
    return -(excess / overlong_buffer * overlong_factor).clamp(min=0)
