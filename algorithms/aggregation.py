"""From losses of tokens to one number, with denominators of the whole mini-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jaxtyping import Bool, Float
from torch import Tensor

AGGREGATIONS: Final = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
"""How token losses become one number; L_{i,t} is a token's loss and n_i the number of trained tokens of row i.

- token-mean: Σ_i Σ_t L_{i,t} / Σ_i n_i
- seq-mean-token-mean: mean over rows of Σ_t L_{i,t} / n_i
- seq-mean-token-sum: mean over rows of Σ_t L_{i,t}
- seq-mean-token-sum-norm: mean over rows of Σ_t L_{i,t} / a constant (Dr.GRPO)

Rows without a trained token count nowhere.
"""


@dataclass(frozen=True, slots=True)
class Denominators:
    """What a mini-batch divides by: counted over all of its micro-batches and ranks, so that their losses sum to the
    mini-batch's loss.
    """

    tokens: int
    """Trained tokens."""
    sequences: int
    """Rows with at least one trained token."""

    def __add__(self, other: "Denominators") -> "Denominators":
        return Denominators(self.tokens + other.tokens, self.sequences + other.sequences)


def denominators(
    mask: Bool[Tensor, "episode token"], weight: Float[Tensor, "episode token"] | None = None
) -> Denominators:
    """Count the trained tokens and rows of a mini-batch.

    Args:
        mask: true on the policy's tokens.
        weight: credit weight of each token; a token of weight 0 is not trained and not counted.
    """
    trained = mask if weight is None else mask & (weight != 0)
    return Denominators(int(trained.sum()), int(trained.any(dim=1).sum()))


def total(parts: Sequence[Denominators]) -> Denominators:
    """Sum of the counts of several micro-batches or ranks."""
    return sum(parts, start=Denominators(0, 0))


def aggregate(
    values: Float[Tensor, "episode token"],
    trained: Bool[Tensor, "episode token"],
    aggregation: str,
    whole: Denominators,
    divisor: float,
) -> Float[Tensor, ""]:
    """This micro-batch's share of the mini-batch's mean of `values`.

    Args:
        values: anything finite on the tokens of `trained`; the rest is ignored, NaN included.
        trained: tokens that count.
        aggregation: one of `AGGREGATIONS`.
        whole: counts of the whole mini-batch.
        divisor: the constant of seq-mean-token-sum-norm.
    """
    sums = values.where(trained, 0.0).sum(dim=1)
    if aggregation == "token-mean":
        return sums.sum() / max(whole.tokens, 1)
    if aggregation == "seq-mean-token-sum-norm":
        sums = sums / divisor
    if aggregation == "seq-mean-token-mean":
        sums = sums / trained.sum(dim=1).clamp(min=1)
    return sums.sum() / max(whole.sequences, 1)
