"""A key–value cache in which the column of a token is its position in its row.

Rows of different lengths then need no padding between calls, new tokens of any row are written in place, and the causal
rule is one comparison: a query at position p sees the columns 0 … p. Behind a row's last token lie leftovers of
padding; nobody sees them, since a token is written before its column is seen.
"""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

_VECTOR = 16
"""Attention over many queries is several times quicker on a CPU where columns fill whole vectors."""
_STEP = 2 * _VECTOR
"""Storage grows by so many columns at a time, so that some calls find room for theirs."""


def _rounded(columns: int, step: int) -> int:
    return -(-columns // step) * step


class _PositionLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, stored as [row, head, column, size]."""

    def __init__(self, cache: "PositionCache") -> None:
        super().__init__()
        self._cache = cache

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the next tokens [row, head, query, size] of the first rows; returns all that these rows have, [row,
        head, column, size].
        """
        # under autocast, rotated keys are wider than what attention makes of them
        key_states = key_states.to(value_states.dtype)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = self._empty(key_states), self._empty(value_states)
        index = self._cache.index(heads=key_states.shape[1])
        for states, new in ((self.keys, key_states), (self.values, value_states)):
            states.view(-1, states.shape[3]).index_copy_(0, index, new.reshape(-1, states.shape[3]))
        rows, columns = len(key_states), self._cache.columns
        return self.keys[:rows, :, :columns], self.values[:rows, :, :columns]

    def get_seq_length(self) -> int:
        return self._cache.columns

    def select(self, rows: Int[Tensor, " row"], columns: int) -> None:
        """Move the first columns of these rows to storage of the cache's present size."""
        if self.is_initialized:
            self.keys, self.values = self._moved(self.keys, rows, columns), self._moved(self.values, rows, columns)

    def _moved(self, states: Tensor, rows: Int[Tensor, " row"], columns: int) -> Tensor:
        result = self._empty(states)
        torch.index_select(states[:, :, :columns], 0, rows, out=result[:, :, :columns])
        return result

    def _empty(self, like: Tensor) -> Tensor:
        # what nobody sees must be a number, too
        return like.new_zeros((self._cache.rows, like.shape[1], self._cache.width, like.shape[3]))

    def swap(self, rows: Int[Tensor, " row"], others: Int[Tensor, " row"]) -> None:
        for states in (self.keys, self.values):
            used = states[:, :, : self._cache.columns]
            used[torch.cat((rows, others))] = used[torch.cat((others, rows))]


class PositionCache:
    """The cache of a batch of rows, with room for `capacity` columns. `model_cache` is what a model of transformers is
    called with.
    """

    def __init__(self, num_layers: int, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.columns = 0
        """How many columns the next tokens see at most."""
        self._index: dict[int, Tensor] = {}
        self._positions = torch.zeros((0, 0), dtype=torch.long)
        self.layers = [_PositionLayer(self) for _ in range(num_layers)]
        self.model_cache = Cache(layers=self.layers)

    @property
    def width(self) -> int:
        """Columns in storage. At least one has no token of its own and takes padding."""
        return _rounded(self.capacity + 1, _STEP)

    def select(self, rows: list[int], capacity: int) -> None:
        """Keep these rows, in this order and as often as they are named, with room for `capacity` columns."""
        before, columns = (list(range(self.rows)), self.width), min(self.columns, capacity)
        self.rows, self.capacity = len(rows), capacity
        if (rows, self.width) != before:
            kept = torch.tensor(rows, device=self._positions.device)
            for layer in self.layers:
                layer.select(kept, columns)

    def swap(self, rows: list[int], others: list[int]) -> None:
        """Let each of these rows change places with another."""
        there, back = (torch.tensor(indices, device=self._positions.device) for indices in (rows, others))
        for layer in self.layers:
            layer.swap(there, back)

    def place(self, positions: Int[Tensor, "row query"], columns: int) -> Bool[Tensor, "row 1 query column"]:
        """Announce where the next tokens of the first rows go; returns which columns each of them sees.

        Args:
            positions: in each row rising by one. Padding comes last; where the capacity ends, it stays at `capacity`.
            columns: the largest position that is no padding, and one.
        """
        self._positions, self.columns, self._index = positions, _rounded(columns, _VECTOR), {}
        return torch.arange(self.columns, device=positions.device) <= positions[:, None, :, None]

    def place_at(self, index: Int[Tensor, " token"], heads: int, columns: int) -> None:
        """The same with an index that `index_of` has worked out before."""
        self.columns, self._index = columns, {heads: index}

    def index(self, heads: int) -> Int[Tensor, " token"]:
        if heads not in self._index:
            self._index[heads] = self.index_of(self._positions, heads)
        return self._index[heads]

    def index_of(self, positions: Int[Tensor, "row query"], heads: int) -> Int[Tensor, " token"]:
        """Where tokens lie in storage [row head column, size], in the order row, head, query."""
        first = torch.arange(len(positions) * heads, device=positions.device).view(-1, heads, 1) * self.width
        return (first + positions[:, None]).flatten()
