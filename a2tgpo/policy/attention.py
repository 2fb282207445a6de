"""Who may look at whom, for rows that hold an episode and probes.

A probe is a few tokens that continue the episode from some cut without being part of it. Transformers hands every
attention layer's queries, keys and values to a registered function; the one below passes them to an `Attend`, so the
policy's passes need neither a dense length × length mask nor changes to the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn
from transformers import AttentionInterface

from a2tgpo.errors import ConfigError

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(queries [row head token width], keys, values [row key_head token width], scaling) -> attended values [row token head
width].
"""

_NAME = "a2tgpo"
_COLUMNS_PER_BLOCK, _MOST_BLOCKS = 400, 8
"""One more block of probes for every so many columns, up to a number: a call of its own costs about what it saves
there.
"""


@dataclass(frozen=True, slots=True)
class ProbeMask:
    """Rows of probe tokens followed by episode tokens (right padded).

    The probes stand in front although they are read as continuations: so what a probe may see is a leading part of the
    row, and keys need no copying.
    """

    visible: Bool[Tensor, "episode probe column"]
    """May this probe token look at this column? Columns are the probe tokens, then the episode tokens."""
    reach: tuple[int, ...]
    """Per probe token: columns from here on are visible to it in no row."""

    @property
    def count(self) -> int:
        """Probe tokens per row."""
        return len(self.reach)

    def blocks(self) -> list[tuple[slice, int]]:
        """Probe tokens in a few blocks, each with its reach: in long rows, early probes need not pass over what only
        later ones may see.
        """
        wanted = min(_MOST_BLOCKS, max(1, self.visible.shape[2] // _COLUMNS_PER_BLOCK))
        size = -(-self.count // wanted)
        return [
            (slice(start, min(start + size, self.count)), max(self.reach[start : start + size]))
            for start in range(0, self.count, size)
        ]


def causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Every token sees itself and what came before. Right padding needs no mask, since nothing looks to the right."""
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped
    ).transpose(1, 2)


def split_attention(mask: ProbeMask) -> Attend:
    """Attention in parts: plain causal for the episode, thin rectangular masks for the probes. Works wherever scaled
    dot product attention does.
    """
    blocks = mask.blocks()
    biases: dict[int, list[Tensor]] = {}

    def attend(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        # Query heads that share a key head become rows of one head: few rows per head are slow, and fused kernels with
        # a mask know no shared heads.
        rows, heads, _, width = query.shape
        shared = heads // key.shape[1]
        # numbers to add to the scores; kernels make them out of booleans too, but anew in every layer
        if shared not in biases:
            whole = torch.zeros(mask.visible.shape, dtype=query.dtype, device=query.device).masked_fill_(
                ~mask.visible, -torch.inf
            )
            biases[shared] = [whole[:, None, tokens, :reach].repeat(1, 1, shared, 1) for tokens, reach in blocks]
        parts = []
        for (tokens, reach), bias in zip(blocks, biases[shared], strict=True):
            packed = query[:, :, tokens].reshape(rows, key.shape[1], -1, width)
            seen = F.scaled_dot_product_attention(
                packed, key[:, :, :reach], value[:, :, :reach], attn_mask=bias, scale=scaling
            )
            parts.append(seen.reshape(rows, heads, -1, width).transpose(1, 2))
        episode = causal(query[:, :, mask.count :], key[:, :, mask.count :], value[:, :, mask.count :], scaling)
        return torch.cat([*parts, episode], dim=1)

    return attend


def flex_attention(mask: ProbeMask) -> Attend:
    """The same in one call of torch's flex attention, whose block mask skips what nobody sees. Compiled on a GPU; on a
    CPU it is a slow reference.
    """
    from torch.nn.attention import flex_attention as flex

    visible, count = mask.visible, mask.count
    rows, _, columns = visible.shape
    blocks = flex.create_block_mask(
        lambda row, _head, token, column: torch.where(
            token < count, visible[row, token.clamp(max=count - 1), column], (column >= count) & (column <= token)
        ),
        rows,
        None,
        columns,
        columns,
        device=visible.device.type,
    )
    kernel: Any = _compiled_flex_attention() if visible.is_cuda else flex.flex_attention

    def attend(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        attended: Tensor = kernel(
            query, key, value, block_mask=blocks, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
        )
        return attended.transpose(1, 2)

    return attend


@contextmanager
def attention_of(model: Any) -> Iterator[None]:
    """Let the model's layers call the `attend` that its forward was given; its own attention is back afterwards. Not
    for concurrent use of one model.
    """
    before = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    attend: Attend,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What a transformers layer calls. Dropout is left out on purpose: the same weights must give the same
    log-probabilities in every pass.
    """
    window = kwargs.get("sliding_window")
    if window is not None and query.shape[2] > window:
        raise ConfigError(
            f"policy: a layer of {type(module).__name__} attends to {window} tokens only, got rows of {query.shape[2]};"
            " sliding windows are not supported, use a model without them or shorter episodes"
        )
    return attend(query, key, value, scaling).contiguous(), None


@cache
def _compiled_flex_attention() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention as kernel

    return torch.compile(kernel, dynamic=True)


AttentionInterface.register(_NAME, _attend)
