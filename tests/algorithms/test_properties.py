"""What must hold for every table: symmetries, degenerate groups, and agreement with the slow loops."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from a2tgpo.algorithms import A2TGPO, ALGORITHMS, GRPO, IGPO, Algorithm, GiGPO
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.bench import loops as oracles
from tests.support.tables import NAN, make_table, tables, take_rows, widened

COMPARING = ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "at2po"]
"""Algorithms whose credit is the outcome compared with the group, and nothing else."""

POOLING = ["reinforce_plus_plus", "reinforce_plus_plus_baseline", "igpo"]
"""Algorithms that compare with more than the group's outcomes, or gains, among themselves."""

properties = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def close(got: Tensor, expected: Tensor, tolerance: float = 2e-4) -> None:
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)


def same(got: Credit, expected: Credit) -> None:
    close(got.advantage, expected.advantage)
    close(got.clip_scale, expected.clip_scale)
    close(got.weight, expected.weight)


def released_oracle(table: TurnTable) -> tuple[Tensor, Tensor]:
    """A2TGPO's released code by loops: compact the gains, give each segment its credit."""
    kept: list[list[int]] = []
    outcome = table.outcome.clone()
    for i in range(len(table.group)):
        searches = [k for k in range(table.mask.shape[1]) if table.scored[i, k]]
        own = [k for k in searches[1:] if table.information_gain[i, k] != 0]
        if own and own[-1] == int(table.num_turns[i]) - 1:
            outcome[i] += table.information_gain[i, own.pop()]
        kept.append(own)
    gains = [[table.information_gain[i, k].item() for k in own] for i, own in enumerate(kept)]
    compact = make_table(outcome.tolist(), [max(len(own), 1) + 1 for own in kept], gains, table.group.tolist())
    advantage, scale = oracles.a2tgpo(compact, ig_weight=0.3)
    full, full_scale = torch.zeros(table.mask.shape), torch.ones(table.mask.shape)
    for i, own in enumerate(kept):
        for k in range(int(table.num_turns[i])):
            ordinal = sum(position < k for position in own)
            full[i, k], full_scale[i, k] = advantage[i, ordinal], scale[i, ordinal]
    return full, full_scale


ORACLES: dict[str, Callable[[TurnTable], Tensor | tuple[Tensor, Tensor]]] = {
    "a2tgpo": oracles.a2tgpo,
    "a2tgpo_released": released_oracle,
    "igpo": oracles.igpo,
    "gigpo": oracles.gigpo,
    "mt_grpo": oracles.mt_grpo,
    "rloo": oracles.rloo,
    "at2po": oracles.at2po,
    "reinforce_plus_plus": oracles.reinforce_plus_plus,
    "reinforce_plus_plus_baseline": oracles.reinforce_plus_plus_baseline,
    "dr_grpo": lambda table: oracles.grpo(table, divide=False),
    "igpo_released": lambda table: oracles.igpo(table, joint=False),
    **dict.fromkeys(["grpo", "grpo_deepseekmath", "gspo", "cispo", "dapo"], oracles.grpo),
}
VARIANTS: list[tuple[Algorithm, Callable[[TurnTable], Tensor | tuple[Tensor, Tensor]]]] = [
    (A2TGPO(gamma=0.7), lambda table: oracles.a2tgpo(table, gamma=0.7)),
    (A2TGPO(turn_groups=False), lambda table: oracles.a2tgpo(table, turn_groups=False)),
    (
        A2TGPO(variance_rescaling=False, gamma=0.0),
        lambda table: oracles.a2tgpo(table, gamma=0.0, variance_rescaling=False),
    ),
    (
        A2TGPO(ig_weight=2.0, clip_modulation=0.9),
        lambda table: oracles.a2tgpo(table, ig_weight=2.0, clip_modulation=0.9),
    ),
    (IGPO(gamma=0.7), lambda table: oracles.igpo(table, gamma=0.7)),
    (IGPO(gamma=0.0, normalization="separate"), lambda table: oracles.igpo(table, gamma=0.0, joint=False)),
    (
        GiGPO(normalize_std=False, gamma=0.5, step_weight=0.3),
        lambda table: oracles.gigpo(table, gamma=0.5, step_weight=0.3, divide=False),
    ),
    (GiGPO(episode_statistics="turns"), lambda table: oracles.gigpo(table, over_turns=True)),
]


def test_every_algorithm_has_an_oracle() -> None:
    assert set(ORACLES) == set(ALGORITHMS)


def check_against(
    algorithm: Algorithm, oracle: Callable[[TurnTable], Tensor | tuple[Tensor, Tensor]], table: TurnTable
) -> None:
    credit, expected = algorithm(table), oracle(table)
    advantage, scale = expected if isinstance(expected, tuple) else (expected, torch.ones_like(expected))
    close(credit.advantage, advantage)
    close(credit.clip_scale, scale)


@pytest.mark.parametrize("name", ALGORITHMS)
@properties
@given(table=tables())
def test_agrees_with_the_loop(name: str, table: TurnTable) -> None:
    check_against(ALGORITHMS[name](), ORACLES[name], table)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@properties
@given(table=tables())
def test_variants_agree_with_the_loop(variant: int, table: TurnTable) -> None:
    check_against(*VARIANTS[variant], table)


@pytest.mark.parametrize("name", ALGORITHMS)
@properties
@given(table=tables(), data=st.data())
def test_permuting_episodes_permutes_credit(name: str, table: TurnTable, data: st.DataObject) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(table.group)))))
    algorithm = ALGORITHMS[name]()
    credit = algorithm(table)
    same(
        algorithm(take_rows(table, order)),
        Credit(credit.advantage[order], credit.clip_scale[order], credit.weight[order]),
    )


@pytest.mark.parametrize("name", ALGORITHMS)
@properties
@given(table=tables(), columns=st.integers(1, 3))
def test_padding_turns_changes_nothing(name: str, table: TurnTable, columns: int) -> None:
    algorithm, turns = ALGORITHMS[name](), table.mask.shape[1]
    credit, wide = algorithm(table), algorithm(widened(table, columns))
    same(Credit(*(column[:, :turns] for column in (wide.advantage, wide.clip_scale, wide.weight))), credit)
    assert bool((wide.advantage[:, turns:] == 0).all())
    assert bool((wide.clip_scale[:, turns:] == 1).all())


@pytest.mark.parametrize(
    "name",
    [
        "grpo",
        "gspo",
        "cispo",
        "dapo",
        "at2po",
        "a2tgpo",
        "igpo_released",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
    ],
)
@properties
@given(table=tables(), scale=st.sampled_from([0.5, 2.0, 4.0]), shift=st.sampled_from([-1.0, 0.0, 3.0]))
def test_affine_change_of_the_outcome_leaves_normalised_credit(
    name: str, table: TurnTable, scale: float, shift: float
) -> None:
    last = torch.arange(table.mask.shape[1]) == table.num_turns[:, None] - 1
    outcome = scale * table.outcome + shift
    changed = replace(table, outcome=outcome, reward=outcome[:, None].where(last, 0.0))
    algorithm = ALGORITHMS[name]()
    close(algorithm(changed).advantage, algorithm(table).advantage, 1e-3)


@pytest.mark.parametrize("name", ["dr_grpo", "rloo"])
@properties
@given(table=tables(), scale=st.sampled_from([0.5, 2.0]), shift=st.sampled_from([-1.0, 3.0]))
def test_centred_credit_scales_with_the_outcome(name: str, table: TurnTable, scale: float, shift: float) -> None:
    algorithm = ALGORITHMS[name]()
    close(
        algorithm(replace(table, outcome=scale * table.outcome + shift)).advantage, scale * algorithm(table).advantage
    )


@properties
@given(table=tables(), scale=st.sampled_from([0.5, 2.0, 4.0]))
def test_gigpo_ignores_the_scale_of_rewards(table: TurnTable, scale: float) -> None:
    close(
        GiGPO()(replace(table, outcome=scale * table.outcome, reward=scale * table.reward)).advantage,
        GiGPO()(table).advantage,
        1e-3,
    )


def group_sums(values: Tensor, group: Tensor) -> Tensor:
    return torch.zeros(int(group.max()) + 1).index_add(0, group.flatten(), values.flatten())


@pytest.mark.parametrize("name", COMPARING)
@properties
@given(table=tables())
def test_the_mean_over_a_group_is_zero(name: str, table: TurnTable) -> None:
    first_turn = ALGORITHMS[name]()(table).advantage[:, 0]
    close(group_sums(first_turn, table.group), torch.zeros(table.num_groups))


@properties
@given(table=tables())
def test_the_mean_over_pools_of_turns_is_zero(table: TurnTable) -> None:
    group = table.group[:, None].expand_as(table.state)
    pooled = IGPO(normalization="joint").turn_rewards(table)
    close(group_sums(pooled, group), torch.zeros(table.num_groups))
    per_turn = A2TGPO().normalized_gain(table)
    turns = table.mask.shape[1]
    close(group_sums(per_turn, group * turns + torch.arange(turns)), torch.zeros(table.num_groups * turns), 1e-3)
    by_turn = GiGPO(episode_statistics="turns")
    close(group_sums(by_turn.episode_term(table), group), torch.zeros(table.num_groups))


@pytest.mark.parametrize("name", [*COMPARING, "gigpo", "a2tgpo", "a2tgpo_released", "mt_grpo"])
@properties
@given(table=tables(max_groups=1, revisits=False))
def test_groups_of_one_give_zero(name: str, table: TurnTable) -> None:
    rows = len(table.group)
    alone = replace(table, group=torch.arange(rows), state=torch.arange(table.mask.numel()).view(table.mask.shape))
    credit = ALGORITHMS[name]()(alone)
    assert bool((credit.advantage == 0).all())
    assert bool((credit.clip_scale == 1).all())


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in POOLING])
@properties
@given(
    size=st.integers(2, 5),
    turns=st.integers(1, 4),
    outcome=st.sampled_from([0.1, 1 / 3, 1.0]),
    gain=st.sampled_from([-0.3, 0.1, 2.0]),
)
def test_constant_groups_give_zero(name: str, size: int, turns: int, outcome: float, gain: float) -> None:
    # numbers that are inexact in float32: rounding in the mean must not be blown up by a tiny deviation
    table = make_table(
        [outcome] * size, [turns] * size, [[gain] * (turns - 1)] * size, states=[list(range(turns))] * size
    )
    credit = ALGORITHMS[name]()(table)
    assert bool((credit.advantage == 0).all())
    assert bool((credit.clip_scale == 1).all())


@properties
@given(table=tables(), modulation=st.sampled_from([0.1, 0.3, 0.9]))
def test_clip_scale_is_bounded_and_monotone_in_the_gain(table: TurnTable, modulation: float) -> None:
    credit = A2TGPO(clip_modulation=modulation)(table)
    assert bool(((credit.clip_scale > 1 - modulation) & (credit.clip_scale < 1 + modulation)).all())
    assert bool((credit.clip_scale[~table.scored] == 1).all())
    for i, j, k in [
        (i, j, k) for k in range(table.mask.shape[1]) for i in range(len(table.group)) for j in range(len(table.group))
    ]:
        if table.group[i] == table.group[j] and table.scored[i, k] and table.scored[j, k]:
            higher = bool(table.information_gain[i, k] > table.information_gain[j, k])
            assert higher == bool(credit.clip_scale[i, k] > credit.clip_scale[j, k])


@properties
@given(table=tables(min_size=2))
def test_a_missing_gain_is_excluded_and_is_not_a_zero(table: TurnTable) -> None:
    # an episode that loses its gains leaves the others with the statistics of a group without it
    others = torch.arange(len(table.group)) > 0
    blank = replace(
        table,
        information_gain=table.information_gain.where(others[:, None], NAN),
        scored=table.scored & others[:, None],
    )
    close(A2TGPO().normalized_gain(blank)[others], A2TGPO().normalized_gain(take_rows(table, others)))
    assert bool((A2TGPO().normalized_gain(blank)[0] == 0).all())


def test_a_zero_gain_does_count() -> None:
    missing = make_table([1, 0, 0], [2, 2, 2], [[0.4], [0.2], [NAN]])
    zero = make_table([1, 0, 0], [2, 2, 2], [[0.4], [0.2], [0.0]])
    # (.4, .2): ±1; (.4, .2, 0): μ = .2, σ = .163299 → 1.22474, 0
    assert A2TGPO().normalized_gain(missing)[:, 0].tolist() == pytest.approx([1, -1, 0], abs=1e-3)
    assert A2TGPO().normalized_gain(zero)[:, 0].tolist() == pytest.approx([1.22474, 0, -1.22474], abs=1e-3)


@properties
@given(table=tables())
def test_algorithms_that_need_no_gain_read_none(table: TurnTable) -> None:
    without = replace(
        table, information_gain=torch.full_like(table.information_gain, NAN), scored=torch.zeros_like(table.scored)
    )
    for algorithm in (cls() for cls in ALGORITHMS.values() if not cls.needs_information_gain):
        same(algorithm(without), algorithm(table))


@properties
@given(table=tables())
def test_equal_states_of_other_questions_do_not_meet(table: TurnTable) -> None:
    # numbering states per question anew changes nothing
    apart = replace(table, state=table.state + 10 * table.group[:, None])
    same(GiGPO()(apart), GiGPO()(table))


def test_large_outcomes_keep_their_differences() -> None:
    table = make_table([100000.25, 100000.0, 100000.0, 100000.0], [1, 1, 1, 1])
    close(GRPO()(table).advantage[:, 0], torch.tensor([1.5, -0.5, -0.5, -0.5]), 1e-2)
