"""From hidden states to log-probabilities and entropies, without keeping anything of vocabulary size."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Entropy = Literal["skip", "value", "gradient"]
"""What to do about entropies: leave zeros, compute them without gradient, or with."""

_CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**29}
"""Largest float32 logits that exist at one time."""


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
    rows = max(1, _CHUNK_BYTES.get(hidden.device.type, 2**26) // (4 * vocabulary))

    def scores_of(chunk: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return _LogSoftmaxScores.apply(head(chunk), wanted, entropy)  # type: ignore[no-any-return,no-untyped-call]

    if len(target) <= rows:
        return TokenScores(*scores_of(hidden, target))
    pieces = []
    for chunk, wanted in zip(torch.split(hidden, rows), torch.split(target, rows), strict=True):
        pieces.append(checkpoint(scores_of, chunk, wanted, use_reentrant=False) if torch.is_grad_enabled() else scores_of(chunk, wanted))
    logprobs, entropies = zip(*pieces, strict=True)
    return TokenScores(torch.cat(logprobs), torch.cat(entropies))


class _LogSoftmaxScores(torch.autograd.Function):
    """log p(target) = x_target - log Σ exp x and H = -Σ p log p in float32, with one pass over the logits backward.

    d log p(t) / d x_j = 1[j = t] - p_j,  dH / d x_j = -p_j (log p_j + H).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, entropy: Entropy) -> tuple[Tensor, Tensor]:
        x = logits.float()
        log_sum = x.logsumexp(dim=1, keepdim=True)
        logprobs = (x.gather(1, target[:, None]) - log_sum).squeeze(1)
        if entropy == "skip":
            h = torch.zeros_like(logprobs)
        else:
            p = (x - log_sum).exp_()
            h = log_sum.squeeze(1) - torch.einsum("tv,tv->t", p, x)
        ctx.save_for_backward(logits, target, log_sum, h)
        ctx.set_materialize_grads(False)
        if entropy != "gradient":
            ctx.mark_non_differentiable(h)
        return logprobs, h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        logits, target, log_sum, h = ctx.saved_tensors
        of_logprob, of_entropy = grads
        log_p = logits.float() - log_sum
        p = log_p.exp()
        result = log_p.add_(h[:, None]).mul_(p).mul_(-of_entropy[:, None]) if of_entropy is not None else log_p.zero_()
        if of_logprob is not None:
            result.addcmul_(p, of_logprob[:, None], value=-1).scatter_add_(1, target[:, None], of_logprob[:, None])
        return result.to(logits.dtype), None, None
