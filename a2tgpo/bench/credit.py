"""How fast credit is computed: the algorithms against straightforward loops over the same table.

The loops (`a2tgpo.bench.loops`) visit groups, episodes and turns one by one and do their arithmetic on the table's
cells, as the public codes do.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.batch import TurnTable
from a2tgpo.bench import loops as oracles
from a2tgpo.display.tables import as_text, table

SIZES: Final = (64, 256, 1024, 4096)
NUM_TURNS: Final = 6
GROUP_SIZE: Final = 16
LOOPS: Final[dict[str, Callable[[TurnTable], object]]] = {
    "gigpo": oracles.gigpo,
    "igpo": oracles.igpo,
    "a2tgpo": oracles.a2tgpo,
}


@dataclass(frozen=True, slots=True)
class CreditTiming:
    """One measurement."""

    algorithm: str
    num_episodes: int
    fast_seconds: float
    """CPU time of one call of the algorithm, best of several."""
    loop_seconds: float
    """CPU time of one call of the loop version."""

    @property
    def ratio(self) -> float:
        """How many times faster the algorithm is than the loop."""
        return self.loop_seconds / self.fast_seconds


def bench_credit(
    sizes: Sequence[int] = SIZES, algorithms: Sequence[str] = tuple(LOOPS), repeats: int = 20
) -> list[CreditTiming]:
    """Time each algorithm and its loop version on random tables of `sizes` episodes × 6 turns; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_measure(name, size, repeats) for name in algorithms for size in sizes]
    finally:
        torch.set_num_threads(threads)


def random_table(num_episodes: int, num_turns: int = NUM_TURNS, seed: int = 0) -> TurnTable:
    """A table as training makes it: groups of 16, every episode of `num_turns` turns, gains on all turns but the last,
    a quarter of the states shared.
    """
    rng = torch.Generator().manual_seed(seed)
    shape = (num_episodes, num_turns)
    mask = torch.ones(shape, dtype=torch.bool)
    scored = mask.clone()
    scored[:, -1] = False
    outcome = torch.randint(0, 2, (num_episodes,), generator=rng).float()
    reward = torch.zeros(shape)
    reward[:, -1] = outcome
    gain = torch.randn(shape, generator=rng).where(scored, torch.nan)
    state = torch.randint(0, max(1, num_episodes * num_turns // 4), shape, generator=rng)
    return TurnTable(
        torch.arange(num_episodes) // GROUP_SIZE, outcome, reward, gain, scored, state, torch.full(shape, 20), mask
    )


def format_timings(timings: Sequence[CreditTiming]) -> str:
    """The measurements as a table."""
    rows = [
        [
            timing.algorithm,
            f"{timing.num_episodes:,}",
            f"{timing.loop_seconds * 1e3:.1f}",
            f"{timing.fast_seconds * 1e3:.2f}",
            f"{timing.ratio:.0f}×",
        ]
        for timing in timings
    ]
    return as_text(table(["algorithm", "episodes", "loop ms", "fast ms", "ratio"], rows))


def _measure(name: str, num_episodes: int, repeats: int) -> CreditTiming:
    turns, algorithm, loop = random_table(num_episodes), ALGORITHMS[name](), LOOPS[name]
    algorithm(turns)  # the first call pays for set-up
    fast = min(_cpu_seconds(lambda: algorithm(turns)) for _ in range(repeats))
    return CreditTiming(name, num_episodes, fast, _cpu_seconds(lambda: loop(turns)))


def _cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
