"""Turn tables for tests: from literal lists, and drawn by hypothesis."""

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from a2tgpo.batch import TurnTable

NAN = float("nan")


def pad(rows: Sequence[Sequence[float]], width: int, fill: float) -> Tensor:
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.float32)


def make_table(
    outcome: Sequence[float],
    num_turns: Sequence[int],
    gains: Sequence[Sequence[float]] | None = None,
    group: Sequence[int] | None = None,
    states: Sequence[Sequence[int]] | None = None,
    num_tokens: Sequence[Sequence[int]] | None = None,
) -> TurnTable:
    """The outcome is the reward of the last turn; `gains` list the first turns of each row (NaN = none); states differ
    everywhere unless given.
    """
    width = max(num_turns)
    gain = pad(gains or [[] for _ in num_turns], width, NAN)
    mask = torch.arange(width) < torch.tensor(num_turns)[:, None]
    reward = pad([[*[0.0] * (n - 1), value] for n, value in zip(num_turns, outcome, strict=True)], width, 0.0)
    state = pad(states, width, 0).long() if states else torch.arange(mask.numel()).view(mask.shape)
    tokens = pad(num_tokens, width, 0).long() if num_tokens else mask.long()
    groups = torch.tensor(group) if group is not None else torch.zeros(len(outcome), dtype=torch.long)
    return TurnTable(
        groups, torch.tensor(outcome, dtype=torch.float32), reward, gain, ~gain.isnan(), state, tokens, mask
    )


def take_rows(table: TurnTable, rows: Tensor) -> TurnTable:
    """The table of some of the episodes, whose groups must stay complete or be renumbered by the caller."""
    return TurnTable(**{field.name: getattr(table, field.name)[rows] for field in fields(table)})


def widened(table: TurnTable, columns: int) -> TurnTable:
    """The same table with more turn columns, full of values that must not matter."""
    rows = len(table.group)
    junk, false = torch.full((rows, columns), 7.5), torch.zeros(rows, columns, dtype=torch.bool)
    return replace(
        table,
        reward=torch.cat([table.reward, junk], 1),
        information_gain=torch.cat([table.information_gain, junk * NAN], 1),
        scored=torch.cat([table.scored, false], 1),
        state=torch.cat([table.state, torch.zeros(rows, columns, dtype=torch.long)], 1),
        num_tokens=torch.cat([table.num_tokens, torch.full((rows, columns), 9)], 1),
        mask=torch.cat([table.mask, false], 1),
    )


# eighths and sixteenths are exact in float32, so that equal stays equal and different stays clearly different
outcomes = st.integers(0, 8).map(lambda number: number / 8)
gain_values = st.one_of(st.integers(-32, 32).map(lambda number: number / 16), st.just(NAN))


@st.composite
def tables(draw: st.DrawFn, max_groups: int = 3, min_size: int = 1, revisits: bool = True) -> TurnTable:
    """Up to three groups of one to four episodes of one to four turns; some gains missing; the last turn has none,
    except when a limit cut the episode.
    """
    sizes = draw(st.lists(st.integers(min_size, 4), min_size=1, max_size=max_groups))
    group = [number for number, size in enumerate(sizes) for _ in range(size)]
    num_turns = [draw(st.integers(1, 4)) for _ in group]
    cut = [draw(st.booleans()) for _ in group]
    gains = [[draw(gain_values) for _ in range(n if c else n - 1)] for n, c in zip(num_turns, cut, strict=True)]
    states = [[draw(st.integers(0, 3)) for _ in range(n)] for n in num_turns] if revisits else None
    tokens = [[draw(st.integers(1, 5)) for _ in range(n)] for n in num_turns]
    return make_table([draw(outcomes) for _ in group], num_turns, gains, group, states, tokens)
