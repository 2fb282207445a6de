"""The carriers: token rows and turn tables written out cell by cell."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from a2tgpo.algorithms import ALGORITHMS, GiGPO
from a2tgpo.batch import Credit, TurnTable, collate, no_tokens, spread, tabulate
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn

S, A, X = ActionKind.SEARCH, ActionKind.ANSWER, ActionKind.INVALID

TWO_TURNS = Episode(
    7,
    "q7",
    0,
    (
        Turn((10, 11), (12,), (-0.5,), S, reward=0.25, information_gain=0.75, state_key="asked"),
        Turn((13,), (14, 15), (-0.1, -0.2), A, reward=1.0, state_key="found"),
    ),
    1.25,
    StopReason.ANSWERED,
)
CUT = Episode(
    3,
    "q3",
    1,
    (Turn((20,), (21, 22, 23), (-1.0, -2.0, -3.0), S, information_gain=-0.5, state_key="found"),),
    0.0,
    StopReason.MAX_TURNS,
    closing_ids=(24, 25),
)
FAILED = replace(TWO_TURNS, stop=StopReason.FAILED, error="retrieval: down")


def test_rows_are_what_was_shown_and_sampled_in_order() -> None:
    batch = collate([TWO_TURNS, CUT], pad_token_id=99)
    assert batch.token_ids.tolist() == [[10, 11, 12, 13, 14, 15], [20, 21, 22, 23, 24, 25]]
    assert batch.turn.tolist() == [[-1, -1, 0, -1, 1, 1], [-1, 0, 0, 0, -1, -1]]
    assert batch.action_mask.tolist() == [
        [False, False, True, False, True, True],
        [False, True, True, True, False, False],
    ]
    torch.testing.assert_close(
        batch.sampler_logprobs, torch.tensor([[0, 0, -0.5, 0, -0.1, -0.2], [0, -1.0, -2.0, -3.0, 0, 0]])
    )
    assert bool(batch.attention_mask.all())


def test_shorter_rows_are_padded_on_the_right() -> None:
    short = replace(CUT, closing_ids=())
    batch = collate([short, TWO_TURNS], pad_token_id=99)
    assert batch.token_ids[0].tolist() == [20, 21, 22, 23, 99, 99]
    assert batch.turn[0].tolist() == [-1, 0, 0, 0, -1, -1]
    assert batch.attention_mask.tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    alone = batch.take([0])
    assert alone.token_ids.tolist() == [[20, 21, 22, 23]]
    assert alone.turn.tolist() == [[-1, 0, 0, 0]]
    assert alone.sampler_logprobs.tolist() == [[0, -1, -2, -3]]
    assert batch.take(torch.tensor([1])).token_ids.tolist() == [[10, 11, 12, 13, 14, 15]]


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "collate: got no episode, expected at least one"),
        ([TWO_TURNS, FAILED], "episode of question 'q7' has stop=failed and 2 turns, expected a played one"),
        ([replace(CUT, turns=())], "episode of question 'q3' has stop=max_turns and 0 turns"),
    ],
)
def test_what_has_nothing_to_train_is_no_row(episodes: list[Episode], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collate(episodes, 0)


def test_a_table_has_every_quantity_of_every_turn() -> None:
    table = tabulate([TWO_TURNS, CUT, replace(TWO_TURNS, group=3)])
    assert table.group.tolist() == [0, 1, 1]  # renumbered in the order in which they come
    assert table.num_groups == 2
    assert table.num_turns.tolist() == [2, 1, 2]
    assert table.outcome.tolist() == [1.25, 0.0, 1.25]
    assert table.reward.tolist() == [[0.25, 1.0], [0.0, 0.0], [0.25, 1.0]]
    assert table.information_gain.nan_to_num(9.0).tolist() == [[0.75, 9.0], [-0.5, 9.0], [0.75, 9.0]]
    assert table.scored.tolist() == [[True, False]] * 3
    assert table.state.tolist() == [[0, 1], [1, 0], [0, 1]]  # 0 also where there is no turn
    assert table.num_tokens.tolist() == [[1, 2], [3, 0], [1, 2]]
    assert table.mask.tolist() == [[True, True], [True, False], [True, True]]


def test_a_failed_episode_has_a_row_without_turns() -> None:
    table = tabulate([FAILED, TWO_TURNS, CUT])
    assert table.mask.tolist() == [[False, False], [True, True], [True, False]]
    assert table.scored.tolist() == [[False, False], [True, False], [True, False]]
    assert table.state.tolist() == [[0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_failed_episodes_count_in_no_statistic(name: str) -> None:
    """The others get the credit that they get without it, and it gets none."""
    algorithm = ALGORITHMS[name]()
    others = [
        replace(TWO_TURNS, group=0),
        replace(TWO_TURNS, group=0, outcome=0.0, turns=TWO_TURNS.turns[:1]),
        replace(CUT, group=0, outcome=0.5),
    ]
    broken = replace(FAILED, group=0, outcome=0.75)
    alone, among = (algorithm(algorithm.tabulate(rows)) for rows in (others, [others[0], broken, *others[1:]]))
    for field in ("advantage", "clip_scale", "weight"):
        torch.testing.assert_close(getattr(among, field)[[0, 2, 3]], getattr(alone, field), atol=0, rtol=0)
    assert among.advantage[1].tolist() == [0, 0]
    assert algorithm.is_informative(algorithm.tabulate([others[0], broken])).tolist() == [True]  # one that was played
    same = [others[0], others[0], broken]
    assert algorithm.is_informative(algorithm.tabulate(same)).tolist() == [False]


def test_states_of_failed_episodes_stand_for_no_others() -> None:
    def asking(episode: Episode, state: str) -> Episode:
        return replace(episode, group=0, turns=(replace(CUT.turns[0], state_key=state),))

    # similarities: first and second 0.9, second and third 0.9, first and third 0.8
    texts = ["abcdefghij", "abcdefghiX", "abcdefghXX"]
    similar = GiGPO(state_similarity=0.9)
    assert similar.tabulate([asking(CUT, text) for text in texts]).state.tolist() == [[0], [0], [1]]
    first, *others = texts
    rows = [asking(FAILED, first), *(asking(CUT, text) for text in others)]
    assert similar.tabulate(rows).state.tolist() == [[0], [0], [0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tabulate([]), "tabulate: got 0 episodes of which none was played, expected at least one"),
        (lambda: tabulate([FAILED]), "tabulate: got 1 episodes of which none was played"),
        (
            lambda: tabulate([TWO_TURNS], lambda _: [0.0]),
            "turn_reward: got 1 values for question 'q7', expected one per turn (2); use None for turns without one",
        ),
        (
            lambda: tabulate([TWO_TURNS], lambda _: [0.0, math.inf]),
            "turn_reward: got inf for turn 1 of question 'q7', expected a finite number or None",
        ),
        (
            lambda: tabulate([TWO_TURNS], lambda _: [math.nan, None]),
            "turn_reward: got nan for turn 0 of question 'q7', expected a finite number or None",
        ),
    ],
)
def test_what_cannot_be_tabulated(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_every_turn_spreads_its_value_over_its_tokens() -> None:
    turn = torch.tensor([[-1, 0, 0, -1, 1, -1], [0, -1, 1, 2, 2, 2]])
    values = torch.tensor([[0.5, -2.0, 9.0], [1.0, 3.0, -4.0]])
    assert spread(values, turn).tolist() == [[0, 0.5, 0.5, 0, -2, 0], [1, 0, 3, -4, -4, -4]]


def test_credit_of_an_advantage_is_plain_otherwise() -> None:
    advantage = torch.tensor([[2.0, -1.0]])
    credit = Credit.of(advantage)
    assert (credit.advantage.tolist(), credit.clip_scale.tolist(), credit.weight.tolist()) == (
        [[2, -1]],
        [[1, 1]],
        [[1, 1]],
    )
    assert Credit.of(advantage, torch.tensor([[0.5, 2.0]])).clip_scale.tolist() == [[0.5, 2.0]]


def test_rows_of_unequal_length_keep_the_longest() -> None:
    batch = collate([replace(CUT, closing_ids=()), TWO_TURNS, CUT], pad_token_id=99)
    assert batch.take([0, 2]).token_ids.shape == (2, 6)
    assert batch.take([0, 0]).token_ids.shape == (2, 4)


def test_no_tokens_are_none() -> None:
    batch = no_tokens("cpu")
    for field in ("token_ids", "attention_mask", "turn", "sampler_logprobs"):
        assert getattr(batch, field).shape == (0, 0)
    assert (batch.attention_mask.dtype, batch.token_ids.dtype) == (torch.bool, torch.long)


def test_a_table_of_no_episode_has_no_group() -> None:
    nothing = torch.zeros(0, 0)
    table = TurnTable(
        torch.zeros(0, dtype=torch.long),
        torch.zeros(0),
        nothing,
        nothing,
        nothing.bool(),
        nothing.long(),
        nothing.long(),
        nothing.bool(),
    )
    assert table.num_groups == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("reward", torch.zeros(2, 3), "TurnTable.reward: got shape (2, 3), expected (2, 2) (as `mask` has 2 episodes"),
        ("outcome", torch.zeros(3), "TurnTable.outcome: got shape (3,), expected (2,)"),
        ("group", torch.zeros(2, 2).long(), "TurnTable.group: got shape (2, 2), expected (2,)"),
        ("group", torch.tensor([-1, 0]), "TurnTable.group: got -1, expected ids from 0 on"),
        ("group", torch.tensor([0, 2]), "TurnTable.group: group ids [1] have no episode, expected 0 … 2 all in use"),
        ("outcome", torch.tensor([0.0, math.inf]), "TurnTable.outcome: got inf at index [1], expected finite numbers"),
        (
            "reward",
            torch.tensor([[0.0, 0.0], [math.nan, 0.0]]),
            "TurnTable.reward: got nan at index [1, 0], expected finite numbers on existing turns",
        ),
        (
            "scored",
            torch.tensor([[True, False], [True, True]]),
            "TurnTable.information_gain: got nan at index [1, 1], expected finite numbers where `scored` is true",
        ),
        ("mask", torch.tensor([[True, True], [False, True]]), "TurnTable.scored: got True at index [1, 0], expected"),
        ("mask", torch.tensor([[False, True], [True, False]]), "TurnTable.scored: got True at index [0, 0], expected"),
    ],
)
def test_a_table_says_what_is_wrong_with_it(field: str, value: torch.Tensor, message: str) -> None:
    """Asked directly, since the checks of shapes that run in tests would come first."""
    table = tabulate([TWO_TURNS, CUT])
    object.__setattr__(table, field, value)
    with pytest.raises(ValueError) as caught:
        table.__post_init__()
    assert str(caught.value).startswith(message)


def test_a_mask_with_a_gap_is_refused() -> None:
    table = tabulate([TWO_TURNS, CUT])
    object.__setattr__(table, "scored", torch.zeros(2, 2).bool())
    object.__setattr__(table, "mask", torch.tensor([[True, True], [False, True]]))
    with pytest.raises(
        ValueError, match=r"TurnTable.mask: got False at index \[1, 0\], expected a run of true from turn 0"
    ):
        table.__post_init__()


def test_what_is_no_number_may_stand_where_no_turn_is() -> None:
    table = tabulate([TWO_TURNS, CUT])
    object.__setattr__(table, "reward", torch.tensor([[0.0, 0.0], [0.0, math.nan]]))
    table.__post_init__()
    assert table.num_turns.tolist() == [2, 1]
