"""From hidden states to log-probabilities and entropies, without keeping anything of vocabulary size."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Entropy = Literal["skip", "value", "gradient"]
"""What to do about entropies: leave zeros, compute them without gradient, or with."""

_BLOCK_BYTES = {"cpu": 4 * 2**20, "cuda": 2**29}
"""Largest float32 logits of one block of the vocabulary. On a CPU so small that all that is done with a block finds it
in the cache.
"""
_KEPT_BYTES = {"cpu": 30 * 2**20, "cuda": 2**29}
"""Up to this size the whole vocabulary's probabilities are kept for the backward pass. On a CPU below 32 MiB, up to
which the C library reuses freed memory.
"""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities and entropies in nats, float32; of one token each ([token]) or in the layout of a batch
    ([episode token], 0 off the policy tokens).
    """

    logprobs: Float[Tensor, "..."]
    entropy: Float[Tensor, "..."]


def score_tokens(
    head: nn.Linear, hidden: Float[Tensor, "token width"], target: Int[Tensor, " token"], entropy: Entropy
) -> TokenScores:
    """Scores of the target tokens under `head(hidden)`, computed in blocks of the vocabulary.

    With gradients and more than one block, each block's logits are computed again in the backward pass instead of being
    kept.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    learns = torch.is_grad_enabled()  # within an autograd function it never is
    return TokenScores(*_LinearScores.apply(hidden, head.weight, head.bias, target, entropy, dtype, learns))  # type: ignore[no-untyped-call]


class _LinearScores(torch.autograd.Function):
    """log p(target) and H = -Σ p log p for p = softmax(x), x = hidden · weightᵀ + bias; sums in float32.

    Three numbers per token are carried from block to block: the largest logit m so far, Z = Σ exp(x - m) and S = Σ
    exp(x - m) (x - m). In the end

        log p(t) = x_t - m - log Z,   H = log Z - S / Z,
        d log p(t) / d x_j = 1[j = t] - p_j,   dH / d x_j = -p_j (log p_j + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        entropy: Entropy,
        dtype: torch.dtype,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, learns = hidden.to(dtype), learns and any(ctx.needs_input_grad)
        blocks = list(_blocks(len(hidden), len(weight), hidden.device.type, learns))
        z = s = chosen = torch.zeros((len(hidden), 1), device=hidden.device)
        m = torch.full_like(z, torch.finfo(z.dtype).min)
        for words in blocks:
            x = _logits(rows, weight, bias, words)
            chosen = torch.where(_inside(target, words), x.gather(1, _within(target, words)), chosen)
            higher = torch.maximum(m, x.amax(dim=1, keepdim=True))
            change, m = m - higher, higher
            x.sub_(m)
            p = x.exp_() if entropy == "skip" else x.exp()
            if entropy != "skip":
                weighted = x * p if learns and entropy == "gradient" else x.mul_(p)
                s = (s + change * z) * change.exp() + weighted.sum(dim=1, keepdim=True)
            z = z * change.exp() + p.sum(dim=1, keepdim=True)
        log_z = z.log()
        h = (log_z - s / z if entropy != "skip" else s).squeeze(1)
        if entropy != "gradient":
            ctx.mark_non_differentiable(h)
        if learns:
            kept = () if len(blocks) > 1 else (p.div_(z), x.sub_(log_z)) if entropy == "gradient" else (p.div_(z),)
            ctx.save_for_backward(hidden, weight, bias, target, m + log_z, h, *kept)
        ctx.set_materialize_grads(False)
        ctx.blocks, ctx.dtype = blocks, dtype
        return (chosen - m - log_z).squeeze(1), h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target, log_sum, h, *kept = ctx.saved_tensors
        of_logprob, of_entropy = (None if grad is None else grad[:, None] for grad in grads)
        rows = hidden.to(ctx.dtype)
        needed = ctx.needs_input_grad
        to_hidden = torch.zeros(hidden.shape, device=hidden.device) if needed[0] else None
        to_weight = torch.empty_like(weight, dtype=ctx.dtype) if needed[1] else None
        to_bias = torch.empty_like(bias, dtype=ctx.dtype) if bias is not None and needed[2] else None
        for words in ctx.blocks:
            log_p = _logits(rows, weight, bias, words).sub_(log_sum) if not kept else kept[-1]
            p = kept[0] if kept else log_p.exp()
            if of_logprob is None:
                to_logits = torch.zeros_like(p)
            else:
                to_logits = p * -of_logprob
                to_logits.scatter_add_(1, _within(target, words), torch.where(_inside(target, words), of_logprob, 0.0))
            if of_entropy is not None:
                to_logits.addcmul_(p, (log_p + h[:, None]) * of_entropy, value=-1)
            to_logits = to_logits.to(ctx.dtype)
            if to_hidden is not None:
                to_hidden += to_logits @ weight[words].to(ctx.dtype)
            if to_weight is not None:
                torch.mm(to_logits.T, rows, out=to_weight[words])
            if to_bias is not None:
                to_bias[words] = to_logits.sum(dim=0)
        found = ((to_hidden, hidden), (to_weight, weight), (to_bias, bias))
        return (
            *(None if gradient is None else gradient.to(of.dtype) for gradient, of in found),
            None,
            None,
            None,
            None,
        )


def _blocks(tokens: int, vocabulary: int, device: str, learns: bool) -> Iterator[slice]:
    """The vocabulary in blocks of about equal size; in one if it may be kept for the backward pass."""
    most = _BLOCK_BYTES.get(device, _BLOCK_BYTES["cpu"]) // (4 * max(1, tokens))
    if learns and tokens * vocabulary * 4 <= _KEPT_BYTES.get(device, _KEPT_BYTES["cpu"]):
        most = vocabulary
    count = -(-vocabulary // max(1, most))
    size = -(-vocabulary // count)
    return (slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size))


def _logits(rows: Tensor, weight: Tensor, bias: Tensor | None, words: slice) -> Tensor:
    """[token word] in float32, a tensor of its own."""
    return F.linear(rows, weight[words].to(rows.dtype), None if bias is None else bias[words].to(rows.dtype)).float()


def _inside(target: Tensor, words: slice) -> Tensor:
    inside: Tensor = (target >= words.start) & (target < words.stop)
    return inside[:, None]


def _within(target: Tensor, words: slice) -> Tensor:
    """The target's column in the block; any column if it is in another one."""
    column: Tensor = target - words.start
    return column.clamp(0, words.stop - words.start - 1)[:, None]
