"""Llama-type decoders written out for the engine's cache.

A decode step of a small model is mostly overhead around the arithmetic: modules call modules, masks are built, arguments are checked and renamed, rotations are
computed anew. Here the arithmetic stands alone, on the model's own weights: rotary positions, query heads that share key heads, root mean square norms, gated
feed-forward layers; biases and norms of heads where there are any. What does not depend on tokens is worked out for all steps at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from a2tgpo.engines.kv_cache import PositionCache

_FEW = 8
"""Queries per row up to which attention is computed without a fused kernel on a CPU."""
_Attended = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


class _Linear(NamedTuple):
    """As `F.linear` takes it."""

    weight: Tensor
    bias: Tensor | None

    @staticmethod
    def of(module: Any) -> "_Linear":
        return _Linear(module.weight, module.bias)


class _Norm(NamedTuple):
    """Root mean square norm of width n with weight w, arranged to need few operations: x · w / √(|x|²/n + ε) = x · √n w / hypot(|x|, √(n ε))."""

    scale: Float[Tensor, " width"]
    floor: Float[Tensor, ""]

    @staticmethod
    def of(module: Any) -> "_Norm":
        width = len(module.weight)
        return _Norm(module.weight.float() * width**0.5, torch.full((), (width * module.variance_epsilon) ** 0.5, device=module.weight.device))

    def __call__(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        size = torch.hypot(torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32), self.floor)
        return (states / size).mul_(self.scale).to(states.dtype)


class _Layer:
    """The parts of a decoder layer."""

    def __init__(self, layer: Any) -> None:
        attention, feed = layer.self_attn, layer.mlp
        self.norm, self.feed_norm = _Norm.of(layer.input_layernorm), _Norm.of(layer.post_attention_layernorm)
        self.query, self.key, self.value, self.output = (_Linear.of(getattr(attention, f"{name}_proj")) for name in "qkvo")
        self.head_norms = (_Norm.of(attention.q_norm), _Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
        self.gate, self.up, self.down = _Linear.of(feed.gate_proj), _Linear.of(feed.up_proj), _Linear.of(feed.down_proj)


class LeanForward:
    """A `Forward` for one call of the engine, on the present weights."""

    def __init__(self, model: Any, cache: PositionCache) -> None:
        decoder, attention = model.get_decoder(), model.get_decoder().layers[0].self_attn
        self._cache = cache
        self._embedding = decoder.embed_tokens.weight
        self._layers = [_Layer(layer) for layer in decoder.layers]
        self._norm = _Norm.of(decoder.norm)
        self._size, self._scaling, self._heads = attention.head_dim, attention.scaling, model.config.num_key_value_heads
        self._shared = model.config.num_attention_heads // self._heads
        positions = torch.arange(cache.capacity + 1, device=self._embedding.device)
        cos, sin = decoder.rotary_emb(self._embedding, positions[None])
        sin[..., : self._size // 2] *= -1  # as `_rotated` needs it
        self._cos, self._sin = cos[0, :, None], sin[0, :, None]  # [position 1 size]

    def read(self, token_ids: Int[Tensor, "row query"], positions: Int[Tensor, "row query"], columns: int) -> Float[Tensor, "row query width"]:
        """See `Forward.read`."""
        visible, flat = self._cache.place(positions, columns), positions.flatten()
        return self._run(token_ids, self._cos[flat], self._sin[flat], *self._attention(visible))

    def steps(self, last: Int[Tensor, " row"], columns: int, count: int) -> Callable[[Tensor], Tensor]:
        """See `Forward.steps`."""
        ahead = torch.arange(1, count + 1, device=last.device)[:, None]
        index = self._cache.index_of(last[:, None], self._heads) + ahead
        prepared = zip(range(columns + 1, columns + count + 1), index, self._cos[last + ahead], self._sin[last + ahead], strict=True)
        # With every step, a row sees one column more, and there is one more to be seen. Counted from the end, nothing changes: all masks are parts of one.
        visible = torch.arange(-count, columns, device=last.device) <= last[:, None, None, None]
        attended, mask = self._attention(visible)

        def step(token_ids: Tensor) -> Tensor:
            seen, index, cos, sin = next(prepared)
            self._cache.place_at(index, self._heads, seen)
            return self._run(token_ids[:, None], cos, sin, attended, mask[..., -seen:])[:, 0]

        return step

    def _attention(self, visible: Bool[Tensor, "row 1 query column"]) -> tuple[_Attended, Tensor]:
        """How to attend, and the mask for it. For few queries, plain matrix products are quicker on a CPU than the fused kernel."""
        lines = 1 if visible.shape[2] == 1 else self._shared  # one query's mask is broadcast
        if visible.shape[2] > _FEW or visible.is_cuda or self._embedding.dtype != torch.float32:
            return _fused, visible.repeat(1, 1, lines, 1)
        return _products, visible.log().repeat(1, self._heads, lines, 1).flatten(0, 1)

    def _run(
        self, token_ids: Int[Tensor, "row query"], cos: Float[Tensor, "token 1 size"], sin: Float[Tensor, "token 1 size"], attended: _Attended, mask: Tensor
    ) -> Float[Tensor, "row query width"]:
        (rows, count), size = token_ids.shape, self._size
        hidden = F.embedding(token_ids.flatten(), self._embedding)
        for layer, cached in zip(self._layers, self._cache.layers, strict=True):
            normed = layer.norm(hidden)
            query = F.linear(normed, *layer.query).view(rows * count, -1, size)
            key = F.linear(normed, *layer.key).view(rows * count, -1, size)
            value = F.linear(normed, *layer.value).view(rows, count, -1, size)
            if layer.head_norms is not None:
                query, key = layer.head_norms[0](query), layer.head_norms[1](key)
            key = _rotated(key, cos, sin).view(rows, count, -1, size)
            keys, values = cached.update(key.transpose(1, 2), value.transpose(1, 2))
            hidden = hidden + F.linear(attended(_rotated(query, cos, sin), keys, values, mask, self._scaling), *layer.output)
            normed = layer.feed_norm(hidden)
            hidden = hidden + F.linear(F.silu(F.linear(normed, *layer.gate)).mul_(F.linear(normed, *layer.up)), *layer.down)
        return self._norm(hidden).view(rows, count, -1)


def _rotated(
    states: Float[Tensor, "token head size"], cos: Float[Tensor, "token 1 size"], sin: Float[Tensor, "token 1 size"]
) -> Float[Tensor, "token head size"]:
    """Rotary position: the halves of a head turn against each other."""
    return (states * cos).addcmul_(states.roll(states.shape[-1] // 2, dims=-1), sin)


def _fused(
    query: Float[Tensor, "token head size"],
    keys: Float[Tensor, "row key_head column size"],
    values: Float[Tensor, "row key_head column size"],
    mask: Bool[Tensor, "row 1 line column"],
    scaling: float,
) -> Float[Tensor, "token width"]:
    lines = _lines(query, *keys.shape[:2])
    return _tokens(F.scaled_dot_product_attention(lines, keys, values, attn_mask=mask, scale=scaling), len(query))


def _products(
    query: Float[Tensor, "token head size"],
    keys: Float[Tensor, "row key_head column size"],
    values: Float[Tensor, "row key_head column size"],
    mask: Float[Tensor, "row_key_head line column"],
    scaling: float,
) -> Float[Tensor, "token width"]:
    lines = _lines(query, *keys.shape[:2]).flatten(0, 1)
    scores = torch.baddbmm(mask, lines, keys.flatten(0, 1).transpose(1, 2), alpha=scaling)
    return _tokens(torch.bmm(scores.softmax(dim=-1), values.flatten(0, 1)).view(*keys.shape[:2], *lines.shape[1:]), len(query))


def _lines(query: Float[Tensor, "token head size"], rows: int, key_heads: int) -> Float[Tensor, "row key_head line size"]:
    """Query heads that share a key head become lines of one head, so that keys and values need no copies."""
    tokens, heads, size = query.shape
    if tokens == rows:
        return query.view(rows, key_heads, -1, size)
    return query.view(rows, tokens // rows, key_heads, heads // key_heads, size).permute(0, 2, 3, 1, 4).reshape(rows, key_heads, -1, size)


def _tokens(seen: Float[Tensor, "row key_head line size"], tokens: int) -> Float[Tensor, "token width"]:
    """The way back."""
    rows, key_heads, _, size = seen.shape
    if tokens == rows:
        return seen.reshape(rows, -1)
    return seen.view(rows, key_heads, -1, tokens // rows, size).permute(0, 3, 1, 2, 4).reshape(tokens, -1)
