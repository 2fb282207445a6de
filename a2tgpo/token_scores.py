"""From hidden states to log-probabilities and entropies, without keeping anything of vocabulary size."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Entropy = Literal["skip", "value", "gradient"]
"""What to do about entropies: leave zeros, compute them without gradient, or with."""

_CHUNK_BYTES = {"cpu": 30 * 2**20, "cuda": 2**29}
"""Largest float32 logits of one chunk. On a CPU below 32 MiB, up to which the C library reuses freed memory; fresh pages cost more than the sums."""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities and entropies in nats, float32; of one token each ([token]) or in the layout of a batch ([episode token], 0 off the policy tokens)."""

    logprobs: Float[Tensor, "..."]
    entropy: Float[Tensor, "..."]


def score_tokens(head: nn.Module, hidden: Float[Tensor, "token width"], target: Int[Tensor, " token"], entropy: Entropy) -> TokenScores:
    """Scores of the target tokens under `head(hidden)`, in chunks over tokens.

    With gradients and more than one chunk, each chunk's logits are computed again in the backward pass instead of being kept.
    """
    vocabulary = head.weight.shape[0] if isinstance(head.weight, Tensor) else target.shape[0]
    most = max(1, _CHUNK_BYTES.get(hidden.device.type, _CHUNK_BYTES["cpu"]) // (4 * vocabulary))
    chunks = -(-len(target) // most)

    def scores_of(chunk: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return _LogSoftmaxScores.apply(head(chunk), wanted, entropy)  # type: ignore[no-any-return,no-untyped-call]

    if chunks <= 1:
        return TokenScores(*scores_of(hidden, target))
    rows = -(-len(target) // chunks)
    pieces = []
    for chunk, wanted in zip(torch.split(hidden, rows), torch.split(target, rows), strict=True):
        pieces.append(checkpoint(scores_of, chunk, wanted, use_reentrant=False) if torch.is_grad_enabled() else scores_of(chunk, wanted))
    logprobs, entropies = zip(*pieces, strict=True)
    return TokenScores(torch.cat(logprobs), torch.cat(entropies))


class _LogSoftmaxScores(torch.autograd.Function):
    """log p(target) and H = -Σ p log p in float32. Overwrites float32 logits, which nobody else may need: they are the largest thing there is.

    d log p(t) / d x_j = 1[j = t] - p_j,  dH / d x_j = -p_j (log p_j + H).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, entropy: Entropy) -> tuple[Tensor, Tensor]:
        x = logits.float()
        x.sub_(x.amax(dim=1, keepdim=True))
        chosen = x.gather(1, target[:, None])
        p = x.exp_() if entropy == "skip" else x.exp()
        total = p.sum(dim=1, keepdim=True)
        log_total = total.log()
        logprobs = (chosen - log_total).squeeze(1)
        h = torch.zeros_like(logprobs)
        if entropy != "skip":
            weighted = x * p if entropy == "gradient" else x.mul_(p)
            h = (log_total - weighted.sum(dim=1, keepdim=True) / total).squeeze(1)
        if entropy != "gradient":
            ctx.mark_non_differentiable(h)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(target, p.div_(total), *((x.sub_(log_total), h) if entropy == "gradient" else ()))
        ctx.set_materialize_grads(False)
        ctx.dtype = logits.dtype
        return logprobs, h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        target, p, *of_gradient = ctx.saved_tensors
        of_logprob, of_entropy = grads
        result = torch.zeros_like(p) if of_logprob is None else (p * -of_logprob[:, None]).scatter_add_(1, target[:, None], of_logprob[:, None])
        if of_entropy is not None:
            log_p, h = of_gradient
            result.addcmul_(p, (log_p + h[:, None]) * of_entropy[:, None], value=-1)
        return result.to(ctx.dtype), None, None
