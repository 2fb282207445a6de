"""A key–value cache in which the column of a token is its position in its row.

Rows of different lengths then need no padding inside the cache, new tokens of any row are written in place, and the causal rule is one comparison: a query at
position p sees the columns 0 … p. Rows can be dropped or reordered between calls.
"""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class _PositionLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, stored as [row, column, head, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Tensor | None = None
        self.positions = torch.zeros((0, 0), dtype=torch.long)
        self.columns = 0
        self.capacity = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        rows, heads, _queries, width = key_states.shape  # a cache begins with all of its rows, so `rows` is their number
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states.new_zeros((rows, self.capacity + 1, heads, width))
            self.values = value_states.new_zeros((rows, self.capacity + 1, heads, value_states.shape[-1]))
        index = torch.arange(len(self.keys), device=key_states.device) if self.rows is None else self.rows
        self.keys[index[:, None], self.positions] = key_states.transpose(1, 2)
        self.values[index[:, None], self.positions] = value_states.transpose(1, 2)
        keys, values = self.keys[:, : self.columns], self.values[:, : self.columns]
        if self.rows is not None:
            keys, values = keys[self.rows], values[self.rows]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def get_seq_length(self) -> int:
        return self.columns

    def select(self, rows: Int[Tensor, " row"], capacity: int) -> None:
        """Keep these rows, in this order, with room for `capacity` columns."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            kept = old[rows]
            if capacity > self.capacity:
                grown = kept.new_zeros((len(rows), capacity + 1, *kept.shape[2:]))
                grown[:, : self.capacity] = kept[:, : self.capacity]
                kept = grown
            setattr(self, name, kept)


class PositionCache:
    """The cache of a batch of rows. `model_cache` is what the model is called with."""

    def __init__(self, num_layers: int) -> None:
        self.layers = [_PositionLayer() for _ in range(num_layers)]
        self.model_cache = Cache(layers=self.layers)
        self.capacity = 0

    def reserve(self, rows: Int[Tensor, " row"] | None, capacity: int) -> None:
        """Keep the given rows (None: the cache is empty) and make room for `capacity` columns; the spare column behind them takes padding."""
        capacity = max(capacity, self.capacity)
        for layer in self.layers:
            if rows is not None:
                layer.select(rows, capacity)
            layer.capacity = capacity
        self.capacity = capacity

    def place(
        self, rows: Int[Tensor, " row"] | None, positions: Int[Tensor, "row query"], real: Bool[Tensor, "row query"]
    ) -> Bool[Tensor, "row 1 query column"]:
        """Announce where the next tokens go (rows None: all of them); returns which columns each token sees.

        Padding is written to the spare column, which nobody sees.
        """
        columns = int(positions[real].max()) + 1
        written = torch.where(real, positions, self.capacity)
        for layer in self.layers:
            layer.rows, layer.positions, layer.columns = rows, written, columns
        return (torch.arange(columns, device=positions.device) <= positions[:, :, None])[:, None]
