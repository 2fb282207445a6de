"""How rows of different lengths are cut into passes."""

from collections.abc import Sequence

import numpy as np

_PASS_SHARE = 16
"""A pass costs about as much as this part of a full micro-batch beyond its tokens: measured for the tiny model on a CPU
(200 to 300 of 4,096 tokens).
"""


def micro_batches(
    lengths: Sequence[int], micro_batch_tokens: int, groups: Sequence[int] | None = None
) -> list[list[int]]:
    """Cut rows into micro-batches of similar length: indices of rows, longest first, so that rows × longest row stays
    within `micro_batch_tokens`.

    A row that is longer than that goes alone. Of all such cuts it is the one with the least padding, where a pass
    counts as much as a sixteenth of the budget.

    Args:
        groups: rows of one group come into one micro-batch, as long as they fit together into any.
    """
    units = [[row] for row in range(len(lengths))] if groups is None else _together(lengths, micro_batch_tokens, groups)
    tallest = np.array([max(lengths[row] for row in unit) for unit in units], dtype=np.int64)
    order = np.argsort(-tallest, kind="stable")
    longest = tallest[order]
    before = np.concatenate([[0], np.cumsum([len(units[unit]) for unit in order])]).astype(np.int64)  # rows
    cost = np.zeros(len(order) + 1, dtype=np.int64)  # of the first so many units, cut in the best way
    begin = np.zeros(len(order) + 1, dtype=np.int64)  # where the last micro-batch of that cut begins
    first = 0
    for end in range(1, len(order) + 1):
        while first < end - 1 and (before[end] - before[first]) * longest[first] > micro_batch_tokens:
            first += 1
        places = (before[end] - before[first:end]) * longest[first:end]
        costs = cost[first:end] + places + micro_batch_tokens // _PASS_SHARE
        begin[end] = first + costs.argmin()
        cost[end] = costs.min()
    batches, end = [], len(order)
    while end:
        batches.append([row for unit in order[begin[end] : end] for row in units[unit]])
        end = int(begin[end])
    return batches[::-1]


def _together(lengths: Sequence[int], micro_batch_tokens: int, groups: Sequence[int]) -> list[list[int]]:
    """The rows of each group, longest first; one by one where they do not fit into a micro-batch."""
    by_group: dict[int, list[int]] = {}
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        by_group.setdefault(groups[row], []).append(row)
    return [
        unit
        for rows in by_group.values()
        for unit in ([rows] if len(rows) * lengths[rows[0]] <= micro_batch_tokens else [[row] for row in rows])
    ]
