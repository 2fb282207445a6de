"""How rows of different lengths are cut into passes."""

from collections.abc import Sequence

import numpy as np

_PASS_SHARE = 16
"""A pass costs about as much as this part of a full micro-batch beyond its tokens: measured for the tiny model on a CPU
(200 to 300 of 4,096 tokens).
"""


def micro_batches(lengths: Sequence[int], micro_batch_tokens: int) -> list[list[int]]:
    """Cut rows into micro-batches of similar length: indices of rows, longest first, so that rows × longest row stays
    within `micro_batch_tokens`.

    A row that is longer than that goes alone. Of all such cuts it is the one with the least padding, where a pass
    counts as much as a sixteenth of the budget.
    """
    order = np.argsort(-np.array(lengths, dtype=np.int64), kind="stable")
    longest = np.array(lengths, dtype=np.int64)[order]
    cost = np.zeros(len(order) + 1, dtype=np.int64)  # of the first so many rows, cut in the best way
    begin = np.zeros(len(order) + 1, dtype=np.int64)  # where the last micro-batch of that cut begins
    first = 0
    for end in range(1, len(order) + 1):
        while first < end - 1 and (end - first) * longest[first] > micro_batch_tokens:
            first += 1
        places = np.arange(end - first, 0, -1) * longest[first:end]
        costs = cost[first:end] + places + micro_batch_tokens // _PASS_SHARE
        begin[end] = first + costs.argmin()
        cost[end] = costs.min()
    batches, end = [], len(order)
    while end:
        batches.append(order[begin[end] : end].tolist())
        end = int(begin[end])
    return batches[::-1]
