"""Llama-type decoders written out for the engine's cache.

A decode step of a small model is mostly overhead around the arithmetic: modules call modules, masks are built,
arguments are checked and renamed, rotations are computed anew. Here the arithmetic stands alone, on the model's own
weights: rotary positions, query heads that share key heads, root mean square norms, gated feed-forward layers; biases
and norms of heads where there are any. What does not depend on tokens is worked out for all steps at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from a2tgpo.engines.transformers.cache import PositionCache


class _Linear:
    """A projection."""

    def __init__(self, module: Any, dtype: torch.dtype) -> None:
        self._weight, self._bias = module.weight.to(dtype).t(), module.bias

    def __call__(self, states: Float[Tensor, "token width"]) -> Float[Tensor, "token result"]:
        return torch.mm(states, self._weight) if self._bias is None else torch.addmm(self._bias, states, self._weight)

    def added(
        self, hidden: Float[Tensor, "token result"], states: Float[Tensor, "token width"]
    ) -> Float[Tensor, "token result"]:
        """The projection added to `hidden`, in place."""
        if self._bias is None and hidden.dtype == self._weight.dtype:
            return hidden.addmm_(states, self._weight)
        return hidden.add_(self(states))


class _Norm(NamedTuple):
    """Root mean square norm of width n with weight w, arranged to need few operations: x · w / √(|x|²/n + ε) = x · √n w
    / hypot(|x|, √(n ε)).
    """

    scale: Float[Tensor, " width"]
    floor: Float[Tensor, ""]

    @staticmethod
    def of(module: Any) -> "_Norm":
        width = len(module.weight)
        return _Norm(
            module.weight.float() * width**0.5,
            torch.full((), (width * module.variance_epsilon) ** 0.5, device=module.weight.device),
        )

    def __call__(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        wide = states.float()
        return (
            wide.div(torch.linalg.vector_norm(wide, 2, -1, True).hypot_(self.floor)).mul_(self.scale).to(states.dtype)
        )


class _Layer:
    """The parts of a decoder layer."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        attention, feed = layer.self_attn, layer.mlp
        self.norm, self.feed_norm = _Norm.of(layer.input_layernorm), _Norm.of(layer.post_attention_layernorm)
        self.query, self.key, self.value, self.output = (
            _Linear(getattr(attention, f"{name}_proj"), dtype) for name in "qkvo"
        )
        self.head_norms = (
            (_Norm.of(attention.q_norm), _Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
        )
        self.gate, self.up, self.down = (
            _Linear(getattr(feed, f"{name}_proj"), dtype) for name in ("gate", "up", "down")
        )


class LeanForward:
    """A `Forward` on the weights that the model has when it is made."""

    def __init__(self, model: Any, cache: PositionCache) -> None:
        decoder, attention = model.get_decoder(), model.get_decoder().layers[0].self_attn
        self._cache = cache
        self._embedding = decoder.embed_tokens.weight
        device, dtype = self._embedding.device, self._embedding.dtype
        if torch.is_autocast_enabled(device.type):  # which would cast the weights anew in every step
            dtype = torch.get_autocast_dtype(device.type)
        self._layers = [_Layer(layer, dtype) for layer in decoder.layers]
        self._norm = _Norm.of(decoder.norm)
        self._size, self._scaling, self._heads = attention.head_dim, attention.scaling, model.config.num_key_value_heads
        self._plain = device.type == "cpu" and dtype == torch.float32
        self._rotary = decoder.rotary_emb
        self._cos = self._sin = self._embedding.new_zeros(0)

    def read(
        self,
        token_ids: Int[Tensor, "row query"],
        positions: Int[Tensor, "row query"],
        last: Int[Tensor, " row"],
        columns: int,
    ) -> Float[Tensor, "row width"]:
        """See `Forward.read`."""
        if self._cache.capacity >= len(self._cos):
            self._prepare_rotations(2 * self._cache.capacity)
        (rows, count), flat = token_ids.shape, positions.flatten()
        visible, cos, sin = self._cache.place(positions, columns), self._cos[flat], self._sin[flat]
        hidden = F.embedding(token_ids.flatten(), self._embedding)
        for layer, cached in zip(self._layers, self._cache.layers, strict=True):
            query, key, value = self._projected(layer, hidden, cos, sin)
            keys, values = cached.update(
                *(states.view(rows, count, -1, self._size).transpose(1, 2) for states in (key, value))
            )
            if layer is self._layers[-1]:  # of all tokens but the last, nothing more is needed
                row = torch.arange(rows, device=last.device)
                hidden, query, visible = (
                    hidden[row * count + last],
                    query[row * count + last],
                    visible[row, :, last, None],
                )
            hidden = self._finished(layer, hidden, _fused(query, keys, values, visible, self._scaling))
        return self._norm(hidden)

    def steps(self, last: Int[Tensor, " row"], columns: int, count: int) -> Callable[[Tensor], Tensor]:
        """See `Forward.steps`."""
        ahead = torch.arange(1, count + 1, device=last.device)[:, None]
        index = self._cache.index_of(last[:, None], self._heads) + ahead
        prepared = zip(
            range(columns + 1, columns + count + 1),
            index,
            self._cos[last + ahead],
            self._sin[last + ahead],
            strict=True,
        )
        # With every step, a row sees one column more, and there is one more to be seen. Counted from the end, nothing
        # changes: all masks are parts of one.
        visible = torch.arange(-count, columns, device=last.device) <= last[:, None, None, None]
        attend = (
            _products_of(self._cache, visible, self._scaling)
            if self._plain
            else _fused_of(self._cache, visible, self._scaling)
        )

        def step(token_ids: Tensor) -> Tensor:
            seen, index, cos, sin = next(prepared)
            self._cache.place_at(index, self._heads, seen)
            hidden = F.embedding(token_ids, self._embedding)
            for number, layer in enumerate(self._layers):
                hidden = self._finished(layer, hidden, attend(number, *self._projected(layer, hidden, cos, sin)))
            return self._norm(hidden)

        return step

    def _prepare_rotations(self, count: int) -> None:
        """Cosines and sines [position 1 size], the latter with the signs that `_rotated` needs."""
        cos, sin = self._rotary(self._embedding, torch.arange(count, device=self._embedding.device)[None])
        first, second = sin[0, :, None].chunk(2, dim=-1)
        self._cos, self._sin = cos[0, :, None], torch.cat((-first, second), dim=-1)

    def _projected(
        self,
        layer: _Layer,
        hidden: Float[Tensor, "token width"],
        cos: Float[Tensor, "token 1 size"],
        sin: Float[Tensor, "token 1 size"],
    ) -> tuple[
        Float[Tensor, "token head size"], Float[Tensor, "token key_head size"], Float[Tensor, "token key_head size"]
    ]:
        """Query, key and value of each token, the first two rotated to their positions."""
        normed, heads = layer.norm(hidden), (hidden.shape[0], -1, self._size)
        query, key, value = (
            layer.query(normed).view(heads),
            layer.key(normed).view(heads),
            layer.value(normed).view(heads),
        )
        if layer.head_norms is not None:
            query, key = layer.head_norms[0](query), layer.head_norms[1](key)
        return _rotated(query, cos, sin), _rotated(key, cos, sin), value

    def _finished(
        self, layer: _Layer, hidden: Float[Tensor, "token width"], seen: Float[Tensor, "token attended"]
    ) -> Float[Tensor, "token width"]:
        """The rest of a layer, after attention; writes to `hidden`."""
        normed = layer.feed_norm(layer.output.added(hidden, seen))
        return layer.down.added(hidden, F.silu(layer.gate(normed), inplace=True).mul_(layer.up(normed)))


def _rotated(
    states: Float[Tensor, "token head size"], cos: Float[Tensor, "token 1 size"], sin: Float[Tensor, "token 1 size"]
) -> Float[Tensor, "token head size"]:
    """Rotary position: the halves of a head turn against each other."""
    return (states * cos).addcmul_(states.roll(states.shape[-1] // 2, dims=-1), sin)


def _fused(
    query: Float[Tensor, "token head size"],
    keys: Float[Tensor, "row key_head column size"],
    values: Float[Tensor, "row key_head column size"],
    visible: Bool[Tensor, "row 1 query column"],
    scaling: float,
) -> Float[Tensor, "token width"]:
    """Attention by torch's fused kernel. Query heads that share a key head become lines of one head, so that keys and
    values need no copies.
    """
    (rows, heads, _, size), count, shared = keys.shape, visible.shape[2], query.shape[1] // keys.shape[1]
    lines = (
        query.view(rows, count, heads, shared, size).permute(0, 2, 3, 1, 4).reshape(rows, heads, shared * count, size)
    )
    mask = visible if count == 1 else visible.repeat(1, 1, shared, 1)
    seen = F.scaled_dot_product_attention(lines, keys, values, attn_mask=mask, scale=scaling)
    return seen.view(rows, heads, shared, count, size).permute(0, 3, 1, 2, 4).reshape(len(query), -1)


_Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Number of a layer, and its query, key and value of the next token of each row -> what the tokens see [row width]."""


def _fused_of(cache: PositionCache, visible: Bool[Tensor, "row 1 1 column"], scaling: float) -> _Attend:
    """For steps: the fused kernel on as much of the cache and of `visible` as there is by then."""

    def attend(number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = cache.layers[number].update(key[:, :, None], value[:, :, None])
        return _fused(query, keys, values, visible[..., -cache.columns :], scaling)

    return attend


def _products_of(cache: PositionCache, visible: Bool[Tensor, "row 1 1 column"], scaling: float) -> _Attend:
    """The same as plain matrix products, which for one token per row are quicker on a CPU. Storage as it is now serves
    all steps.
    """
    rows, heads = visible.shape[0], cache.layers[0].keys.shape[1]
    added = visible.log().repeat(1, heads, 1, 1).flatten(0, 1)  # to scores: nothing where a column is visible, else -∞
    every = added.shape[2]
    storage = [(layer.keys.flatten(0, 2), layer.values.flatten(0, 2)) for layer in cache.layers]
    states = [
        (layer.keys.flatten(0, 1)[: rows * heads].transpose(1, 2), layer.values.flatten(0, 1)[: rows * heads])
        for layer in cache.layers
    ]

    def attend(number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        index, columns, (keys, values) = cache.index(heads), cache.columns, states[number]
        all_keys, all_values = storage[number]
        all_keys.index_copy_(0, index, key.flatten(0, 1))
        all_values.index_copy_(0, index, value.flatten(0, 1))
        lines, mask = query.view(rows * heads, -1, query.shape[2]), added.narrow(2, every - columns, columns)
        scores = torch.baddbmm(mask, lines, keys.narrow(2, 0, columns), alpha=scaling)
        return torch.bmm(scores.softmax(dim=-1), values.narrow(1, 0, columns)).view(rows, -1)

    return attend
