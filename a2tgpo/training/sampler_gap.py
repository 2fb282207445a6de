"""How far the engine that sampled a batch is from the policy that is trained on it.

Both hold the same weights, but their kernels round differently, and a bfloat16 engine more so. The gap is measured in
every step; `LossSpec.importance_cap` weights tokens against it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import NumericalError

SAMPLER_TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.3}
"""Largest mean |log π_old − log π_sampler| per token between trainer and engine that rounding can explain."""
CAP = 2.0
"""Published cap of truncated importance weights; what `sampler_capped` counts against while the loss applies none."""


def check_sampler(
    tokens: TokenBatch, old_logprobs: Float[Tensor, "episode token"], dtype: torch.dtype, temperature: float
) -> None:
    """The engine that sampled must hold the policy's weights.

    Raises:
        NumericalError: if it does not. Sampling at another temperature than 1 differs by intention and is not checked.
    """
    if temperature != 1:
        return
    difference = float((old_logprobs - tokens.sampler_logprobs)[tokens.action_mask].abs().mean())
    if not difference <= SAMPLER_TOLERANCE[dtype]:
        raise NumericalError(
            f"engine: its log-probabilities differ from the policy's by {difference:.3g} nats a token, expected at most"
            f" {SAMPLER_TOLERANCE[dtype]}; it samples with other weights, or from a stale cache"
        )


def mismatch_metrics(
    tokens: TokenBatch, old_logprobs: Float[Tensor, "episode token"], cap: float | None
) -> dict[str, float]:
    """Mean, largest and 99th percentile of |log π_old − log π_sampler| over the policy tokens (nats), and what its
    weights w = π_old / π_sampler come to.

    `sampler_ess` is the effective sample size of the weights as a share of the tokens, (Σ w)² / (n Σ w²), 1 without
    mismatch, for the weights as the loss applies them: min(w, cap), or w itself with cap `None`. `sampler_capped` is
    the share of tokens with w above the cap (`None`: above 2).
    """
    log_weight = (old_logprobs - tokens.sampler_logprobs)[tokens.action_mask].double()
    size, weight = log_weight.abs(), log_weight.exp()
    applied = weight if cap is None else weight.clamp(max=cap)
    return {
        "sampler_mismatch": float(size.mean()),
        "sampler_mismatch_p99": float(size.sort().values[int(0.99 * (len(size) - 1))]),
        "sampler_mismatch_max": float(size.max()),
        "sampler_ess": float(applied.sum().square() / (len(applied) * applied.square().sum())),
        "sampler_capped": float((weight > (CAP if cap is None else cap)).double().mean()),
    }
