"""Which turns have a gain, and between which cuts."""

from typing import Any

import pytest
import torch

from a2tgpo.config import GainSettings
from a2tgpo.envs import PROTOCOLS
from a2tgpo.episode import Episode, StopReason, Turn
from a2tgpo.information_gain import Scoring, score_episodes
from a2tgpo.information_gain.cuts import released_cuts
from tests.support.byte_models import byte_policy, byte_tokenizer
from tests.support.plain_gains import ANSWER, GLUED, INVALID, SCAFFOLD, episode, plain_value, turn


def gains_between(item: Episode, **options: Any) -> list[tuple[int, int] | None]:
    """Per turn: the two token counts whose values make its gain, found by comparing with the oracle's value of every
    prefix.
    """
    policy = byte_policy(added_tags=True)
    values = [
        plain_value(policy, item.token_ids[:cut], GLUED, item.gold_answers[0]) for cut in range(1, item.num_tokens + 1)
    ]
    found: list[tuple[int, int] | None] = []
    for step in score_episodes(policy, [item], Scoring(GLUED, **options)).episodes[0].turns:
        pairs = (
            []
            if step.information_gain is None
            else [
                (a + 1, b + 1)
                for a in range(len(values))
                for b in range(len(values))
                if a < b and abs(values[b] - values[a] - step.information_gain) < 1e-5
            ]
        )
        assert len(pairs) <= 1, "two pairs of cuts differ alike, change the tokens"
        found.append(pairs[0] if pairs else None)
    return found


@pytest.mark.parametrize(
    ("turns", "ending", "expected"),
    [
        # question 3 tokens, action 2, observation 2, action 1: the search's gain lies between 3 and 7 tokens
        ([turn([11, 12, 13], [21, 22]), turn([31, 32], [23], ANSWER)], {}, [(3, 7), None]),
        # invalid turn between: each search starts from what it could see itself (10 tokens, correction included)
        (
            [
                turn([11, 12, 13], [21, 22]),
                turn([31, 32], [24], INVALID),
                turn([41, 42], [25]),
                turn([51], [26], ANSWER),
            ],
            {},
            [(3, 7), None, (10, 12), None],
        ),
        # a retrieval that failed showed no evidence
        (
            [turn([11, 12, 13], [21, 22], retrieval_failed=True), turn([31, 32], [23]), turn([33], [24], ANSWER)],
            {},
            [None, (7, 9), None],
        ),
        # cut by the turn limit: the last observation is in closing_ids
        ([turn([11, 12, 13], [21, 22])], {"stop": StopReason.MAX_TURNS, "closing": [31, 32]}, [(3, 7)]),
        # cut by the token limit before the observation could be recorded
        ([turn([11, 12, 13], [21, 22])], {"stop": StopReason.MAX_TOKENS}, [None]),
        # refused: the search budget was spent
        (
            [turn([11, 12, 13], [21, 22]), turn([31, 32], [23])],
            {"stop": StopReason.MAX_SEARCHES, "closing": [33]},
            [(3, 7), None],
        ),
        # cut after an invalid turn
        (
            [turn([11, 12, 13], [21, 22]), turn([31, 32], [23], INVALID)],
            {"stop": StopReason.MAX_TURNS, "closing": [33]},
            [(3, 7), None],
        ),
        # answered at once
        ([turn([11, 12, 13], [21], ANSWER)], {}, [None]),
    ],
)
def test_gains_lie_between_what_a_turn_saw_and_what_it_was_shown(
    turns: list[Turn], ending: dict[str, Any], expected: list[tuple[int, int] | None]
) -> None:
    assert gains_between(episode(*turns, **ending)) == expected


def test_released_cuts() -> None:
    tokenizer = byte_tokenizer(added_tags=True)
    queries = [
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in ("<search>a</search>", "so <search>b</search>", "hm<search>c</search>")
    ]
    tag = tokenizer.convert_tokens_to_ids("<search>")
    before = [query.index(tag) for query in queries]
    assert before[0] == 0 < before[1]
    item = episode(
        turn([11, 12, 13], queries[0]), turn([31, 32], queries[1]), turn([41], queries[2]), turn([51], [26], ANSWER)
    )
    starts = item.action_starts
    cuts = [starts[1] + before[1], starts[2] + before[2], starts[2] + len(queries[2])]
    # the first search has none, the second compares the starts of the second and third query, the last ends at its own
    # query
    assert gains_between(item, cut_rule="released") == [None, (cuts[0], cuts[1]), (cuts[1], cuts[2]), None]
    assert gains_between(episode(turn([11, 12], queries[0]), turn([31], [26], ANSWER)), cut_rule="released") == [
        None,
        None,
    ]


def test_released_drops_exact_zeros_and_the_definition_keeps_them() -> None:
    policy = byte_policy(seed=9)
    torch.nn.init.zeros_(policy.model.lm_head.weight)  # every value is log 1/V
    item = episode(turn([1, 2], [3]), turn([4], [5]), turn([6], [7], ANSWER))
    assert [step.information_gain for step in score_episodes(policy, [item], Scoring(SCAFFOLD)).episodes[0].turns] == [
        0.0,
        0.0,
        None,
    ]
    assert [
        step.information_gain
        for step in score_episodes(policy, [item], Scoring(SCAFFOLD, cut_rule="released")).episodes[0].turns
    ] == [None, None, None]


def test_the_released_rule_finds_searches_of_every_protocol() -> None:
    """A tool call behind a thought is cut where the call begins, not at the turn's first token."""
    policy = byte_policy(max_tokens=2048)
    encode = policy.tokenizer
    thought, call = (
        encode(text, add_special_tokens=False)["input_ids"]
        for text in ("<think> more </think>\n", '<tool_call>{"name": "search"}</tool_call>')
    )
    item = episode(turn([1, 2], [*thought, *call]), turn([5], [*thought, *call]), turn([6], [7], ANSWER))
    scoring = Scoring.of(PROTOCOLS["tool_call"], GainSettings(cut_rule="released"), 16384)
    cuts = released_cuts(item, policy.tokenizer, scoring.search_tag)
    assert cuts.positions[1] == item.action_starts[1] + len(thought)
    for protocol in PROTOCOLS.values():
        assert protocol.search_tag in protocol.tags
