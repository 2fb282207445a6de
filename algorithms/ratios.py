"""Importance ratios per token, turn and sequence, distances to a reference, and the correction between sampler and
trainer.
"""

from typing import Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

RATIOS: Final = ("token", "turn", "sequence")
KL_ESTIMATORS: Final = ("none", "k1", "k2", "k3")

MAX_TOKEN_LOG_RATIO: Final = 20.0
"""Token log-ratios are held within ±20 before the exponential."""
MAX_SPAN_LOG_RATIO: Final = 10.0
"""Turn and sequence log-ratios are held at or below 10 before the exponential."""
MAX_K3: Final = 10.0


def importance_ratio(
    logprobs: Float[Tensor, "episode token"],
    old_logprobs: Float[Tensor, "episode token"],
    turn: Int[Tensor, "episode token"],
    mask: Bool[Tensor, "episode token"],
    ratio: str,
) -> Float[Tensor, "episode token"]:
    """ρ of every policy token; 1 elsewhere.

    - token: ρ_t = exp(log π_θ − log π_old).
    - turn, sequence: s = exp(mean over the span's policy tokens of log π_θ − log π_old). Each token of the span gets
      the value s and the gradient of its own log-probability: exp(log π_θ − sg(log π_θ) + sg(log s)), the form of
      GSPO-token (arXiv 2507.18071, eq. 13) and of A2TGPO's turn ratio.
    """
    log_ratio = (logprobs - old_logprobs).where(mask, 0.0)
    if ratio == "token":
        return log_ratio.clamp(-MAX_TOKEN_LOG_RATIO, MAX_TOKEN_LOG_RATIO).exp()
    span = turn if ratio == "turn" else torch.zeros_like(turn)
    own = logprobs.where(mask, 0.0)
    return (own - own.detach() + span_mean(log_ratio.detach(), span, mask)).clamp(max=MAX_SPAN_LOG_RATIO).exp()


def span_mean(
    values: Float[Tensor, "episode token"], span: Int[Tensor, "episode token"], mask: Bool[Tensor, "episode token"]
) -> Float[Tensor, "episode token"]:
    """Mean over the policy tokens of each token's span (a turn, or the whole row), given to each of them; 0 outside
    `mask`.
    """
    index = span.where(mask, 0)
    num_spans = int(index.max()) + 1 if index.numel() else 1
    zeros = values.new_zeros(len(values), num_spans)
    sums = zeros.scatter_add(1, index, values.where(mask, 0.0))
    counts = zeros.scatter_add(1, index, mask.to(values.dtype))
    return (sums / counts.clamp(min=1)).gather(1, index).where(mask, 0.0)


def merge_equal_turns(
    turn: Int[Tensor, "episode token"], advantage: Float[Tensor, "episode token"], mask: Bool[Tensor, "episode token"]
) -> Int[Tensor, "episode token"]:
    """Turn numbers as A2TGPO's released code finds them: a new turn begins where the advantage differs from that of the
    previous policy token.

    Neighbouring turns of equal advantage become one. Only for parity with the released code: the true boundaries are in
    `turn`.
    """
    position = torch.arange(turn.shape[1], device=turn.device).expand_as(turn)
    latest = position.where(mask, -1).cummax(dim=1).values
    previous = torch.cat([torch.full_like(latest[:, :1], -1), latest[:, :-1]], dim=1)
    changed = mask & (previous >= 0) & (advantage != advantage.gather(1, previous.clamp(min=0)))
    return changed.cumsum(dim=1).where(mask, -1)


def kl_estimate(
    logprobs: Float[Tensor, "episode token"], reference_logprobs: Float[Tensor, "episode token"], estimator: str
) -> Float[Tensor, "episode token"]:
    """Schulman's estimators of KL(π_θ ‖ π_ref) per sampled token, with d = log π_ref − log π_θ: k1 = −d, k2 = d²/2, k3
    = e^d − d − 1.

    d is held within ±20 and k3 at or below 10. As a loss, k1 has a gradient of mean zero: it measures, it does not pull
    back.
    """
    d = (reference_logprobs - logprobs).clamp(-MAX_TOKEN_LOG_RATIO, MAX_TOKEN_LOG_RATIO)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    return (d.exp() - d - 1).clamp(max=MAX_K3)


def sampler_weight(
    old_logprobs: Float[Tensor, "episode token"],
    sampler_logprobs: Float[Tensor, "episode token"],
    mask: Bool[Tensor, "episode token"],
) -> Float[Tensor, "episode token"]:
    """π_old / π_sampler per policy token, without gradient; 1 elsewhere. It differs from 1 by as much as engine and
    trainer disagree.
    """
    return (
        (old_logprobs - sampler_logprobs)
        .where(mask, 0.0)
        .clamp(-MAX_TOKEN_LOG_RATIO, MAX_TOKEN_LOG_RATIO)
        .exp()
        .detach()
    )
