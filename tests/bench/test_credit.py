"""Credit is computed over the whole table at once, in memory that grows with the table only."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.bench.credit import LOOPS, bench_credit, format_timings, random_table


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts tensor operations and remembers the largest result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return result


def recorded(name: str, num_episodes: int) -> Recorder:
    algorithm, table, recorder = ALGORITHMS[name](), random_table(num_episodes), Recorder()
    with recorder:
        algorithm(table)
    return recorder


@pytest.mark.parametrize("name", ALGORITHMS)
def test_operations_do_not_grow_and_memory_is_linear(name: str) -> None:
    small, large = recorded(name, 128), recorded(name, 1024)
    assert small.operations == large.operations < 400
    assert large.largest <= 8 * small.largest
    assert large.largest <= 2 * 1024 * 6


def test_the_bench_lists_every_loop() -> None:
    timings = bench_credit(sizes=(16,), repeats=1)
    assert [timing.algorithm for timing in timings] == list(LOOPS)
    assert format_timings(timings).count("×") == len(timings)
