"""The same credit once more, slowly: loops over groups, episodes and turns, as the public codes write them.

Tests compare the fast algorithms with these, and `a2tgpo bench credit` says how much faster the fast ones are. Nothing
is trained with them. They share no line with the algorithms beyond the table itself.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from a2tgpo.batch import TurnTable

Cell = tuple[int, int]
_Key = TypeVar("_Key")


def grpo(table: TurnTable, divide: bool = True) -> Float[Tensor, "episode turn"]:
    """Outcome against the group, sample deviation."""
    return _spread(table, _normalized_outcome(table, "sample", divide))


def at2po(table: TurnTable) -> Float[Tensor, "episode turn"]:
    """Outcome against the group, population deviation."""
    return _spread(table, _normalized_outcome(table, "population"))


def rloo(table: TurnTable) -> Float[Tensor, "episode turn"]:
    """Outcome against the mean of the other episodes of the group."""
    credit = {}
    for members in _groups(table):
        for i in members:
            others = [table.outcome[j] for j in members if j != i]
            credit[i] = table.outcome[i] - torch.stack(others).mean() if others else table.outcome[i] * 0
    return _spread(table, credit)


def reinforce_plus_plus(table: TurnTable, gamma: float = 1.0) -> Float[Tensor, "episode turn"]:
    """Return to go, whitened over the batch's tokens."""
    return _whiten(table, {(i, k): _discounted(table, i, k, gamma) for i, k in _turns(table)})


def reinforce_plus_plus_baseline(table: TurnTable) -> Float[Tensor, "episode turn"]:
    """Outcome less the group's mean, whitened over the batch's tokens."""
    centred = _normalized_outcome(table, "sample", divide=False)
    return _whiten(table, {(i, k): centred[i] for i, k in _turns(table)})


def gigpo(
    table: TurnTable, gamma: float = 0.95, step_weight: float = 1.0, divide: bool = True, over_turns: bool = False
) -> Float[Tensor, "episode turn"]:
    """Episode term plus step term."""
    advantage = torch.zeros(table.mask.shape)
    episode_term = _normalized_outcome(table, "sample", divide)
    if over_turns:
        cells = {(i, k): table.outcome[i] for i, k in _turns(table)}
        by_turn = _normalized(cells, {cell: int(table.group[cell[0]]) for cell in cells}, "sample", divide)
        episode_term = {i: by_turn[i, 0] for i, _ in by_turn}
    returns = {(i, k): _discounted(table, i, k, gamma) for i, k in _turns(table)}
    step_term = _normalized(
        returns, {(i, k): (int(table.group[i]), int(table.state[i, k])) for i, k in returns}, "sample", divide
    )
    for i, k in _turns(table):
        advantage[i, k] = episode_term[i] + step_weight * step_term[i, k]
    return advantage


def igpo(table: TurnTable, gamma: float = 1.0, joint: bool = True) -> Float[Tensor, "episode turn"]:
    """Normalised gains and outcome, accumulated backwards."""
    outcome_at = table.mask.shape[1]  # a column of its own behind the last turn
    rewards = {(i, k): table.information_gain[i, k] for i, k in _turns(table) if table.scored[i, k]}
    rewards |= {(i, outcome_at): table.outcome[i] for i in range(len(table.outcome))}
    pools = {(i, k): (int(table.group[i]), not joint and k == outcome_at) for i, k in rewards}
    z = _normalized(rewards, pools, "population")
    advantage = torch.zeros(table.mask.shape)
    for i in range(len(table.outcome)):
        last = int(table.mask[i].sum()) - 1
        later = torch.zeros(())
        for k in range(last, -1, -1):
            own = z.get((i, k), torch.zeros(())) + (z[i, outcome_at] if k == last else 0.0)
            later = own + gamma * later
            advantage[i, k] = later
    return advantage


def a2tgpo(
    table: TurnTable,
    gamma: float = 1.0,
    ig_weight: float = 1.0,
    clip_modulation: float = 0.3,
    turn_groups: bool = True,
    variance_rescaling: bool = True,
) -> tuple[Float[Tensor, "episode turn"], Float[Tensor, "episode turn"]]:
    """Turn-group normalisation, variance-rescaled accumulation, clip scale. Returns advantage and clip scale."""
    gains = {(i, k): table.information_gain[i, k] for i, k in _turns(table) if table.scored[i, k]}
    z = _normalized(gains, {(i, k): (int(table.group[i]), k if turn_groups else 0) for i, k in gains}, "population")
    outcome = _normalized_outcome(table, "population")
    advantage, clip_scale = torch.zeros(table.mask.shape), torch.ones(table.mask.shape)
    for i in range(len(table.outcome)):
        own = [k for k in range(table.mask.shape[1]) if (i, k) in z]
        for k in range(int(table.mask[i].sum())):
            advantage[i, k] = outcome[i]
        for t, k in enumerate(own):
            total = torch.zeros(())
            for later in range(t, len(own)):
                total = total + gamma ** (later - t) * z[i, own[later]]
            scale = math.sqrt(len(own) - t) if variance_rescaling else 1.0
            advantage[i, k] += ig_weight * total / scale
            clip_scale[i, k] = 1 + clip_modulation * (2 * torch.sigmoid(z[i, k]) - 1)
    return advantage, clip_scale


def mt_grpo(table: TurnTable, turn_weight: float = 1.0) -> Float[Tensor, "episode turn"]:
    """Outcome, first process reward and their sum, each against the group."""
    first = {
        i: next((k for k in range(table.mask.shape[1]) if table.scored[i, k]), None) for i in range(len(table.outcome))
    }
    reward = {i: table.information_gain[i, k] for i, k in first.items() if k is not None}
    both = {i: table.outcome[i] + reward.get(i, torch.zeros(())) for i in first}
    group = {i: int(table.group[i]) for i in first}
    outcome_term = _normalized_outcome(table, "sample", epsilon=1e-4)
    turn_term = _normalized(reward, group, "sample", epsilon=1e-4)
    combined = _normalized(both, group, "sample", epsilon=1e-4)
    advantage = torch.zeros(table.mask.shape)
    for i, k in _turns(table):
        until = first[i]
        if until is None:
            advantage[i, k] = combined[i]
        else:
            advantage[i, k] = outcome_term[i] + (turn_weight * turn_term[i] if k <= until else 0.0)
    return advantage


def _turns(table: TurnTable) -> Iterator[Cell]:
    for i in range(table.mask.shape[0]):
        for k in range(table.mask.shape[1]):
            if table.mask[i, k]:
                yield i, k


def _groups(table: TurnTable) -> list[list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(table.group)):
        members[int(table.group[i])].append(i)
    return list(members.values())


def _discounted(table: TurnTable, i: int, k: int, gamma: float) -> Tensor:
    total = torch.zeros(())
    for j in range(k, int(table.mask[i].sum())):
        total = total + gamma ** (j - k) * table.reward[i, j]
    return total


def _normalized_outcome(
    table: TurnTable, statistics: str, divide: bool = True, epsilon: float = 1e-6
) -> dict[int, Tensor]:
    outcomes = {i: table.outcome[i] for i in range(len(table.outcome))}
    return _normalized(outcomes, {i: int(table.group[i]) for i in outcomes}, statistics, divide, epsilon)


def _normalized(
    values: Mapping[_Key, Tensor],
    group: Mapping[_Key, Hashable],
    statistics: str,
    divide: bool = True,
    epsilon: float = 1e-6,
) -> dict[_Key, Tensor]:
    pools: dict[Hashable, list[Tensor]] = defaultdict(list)
    for key, value in values.items():
        pools[group[key]].append(value)
    moments = {name: _moments(pool, statistics) for name, pool in pools.items()}
    normalized = {}
    for key, value in values.items():
        mean, std = moments[group[key]]
        normalized[key] = (value - mean) / (std + epsilon) if divide else value - mean
    return normalized


def _moments(pool: Sequence[Tensor], statistics: str) -> tuple[Tensor, Tensor]:
    stacked = torch.stack(list(pool))
    if len(pool) == 1:
        return stacked[0], torch.ones(())
    if statistics == "sample":
        return stacked.mean(), stacked.std(unbiased=True)
    return stacked.mean(), (stacked.var(unbiased=False) + 1e-8).sqrt()


def _whiten(table: TurnTable, values: dict[Cell, Tensor]) -> Float[Tensor, "episode turn"]:
    tokens = [value for (i, k), value in values.items() for _ in range(int(table.num_tokens[i, k]))]
    advantage = torch.zeros(table.mask.shape)
    if len(tokens) < 2:
        return advantage
    variance, mean = torch.var_mean(torch.stack(tokens), unbiased=True)
    for (i, k), value in values.items():
        advantage[i, k] = (value - mean) / (variance + 1e-8).sqrt() if table.num_tokens[i, k] > 0 else 0.0
    return advantage


def _spread(table: TurnTable, per_episode: dict[int, Tensor]) -> Float[Tensor, "episode turn"]:
    advantage = torch.zeros(table.mask.shape)
    for i, k in _turns(table):
        advantage[i, k] = per_episode[i]
    return advantage
