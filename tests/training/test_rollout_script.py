"""An episode written out: what every turn sees, samples, earns and leaves, down to the token.

The engine writes a script; words are tokens, so that all numbers can be followed by hand: `<unk>` 2, `<search>` 3,
`</search>` 4, `<answer>` 5, `</answer>` 6, `<information>` 7, `</information>` 8, `w0` 9, `w1` 10, …
"""

from collections.abc import Sequence
from typing import Any

import pytest

from a2tgpo.engines.base import Request
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Rollout, Task
from tests.support.small_world import PASSAGES, QUESTIONS
from tests.support.tiny_models import tiny_policy
from tests.support.written_engine import WrittenEngine, encoder

SCRIPT = ("<search> w0 </search>", "w5 w5", "<answer> w7 </answer>")
PROMPT = (2, 9, 10)
"""Question q0 is "w0 w1"; the words before it are unknown to the tokenizer."""
FOUND = (7, 9, 2, 9, 16, 12, 22, 2, 22, 9, 25, 8)
"""Passages p0 and p13, the two that hold w0."""
CORRECTIVE = (2,)


def played(
    scripts: Sequence[Sequence[str]],
    tasks: Sequence[Task] = (Task(3, "q0", 11),),
    limit: int = 200,
    **environment: Any,
) -> tuple[list[Episode], list[Request]]:
    """Episodes of these tasks whose turns are those of the scripts, and what the engine was asked for."""
    policy, asked = tiny_policy(), list[Request]()
    encode = encoder(policy.tokenizer)

    def reply(request: Request) -> Sequence[int]:
        turn = sum(earlier.key == request.key for earlier in asked)
        asked.append(request)
        return encode(scripts[request.key][turn])

    env = SearchQAVectorEnv(
        QUESTIONS,
        Bm25Retriever(PASSAGES),
        len(tasks),
        top_k=2,
        protocol="tags_brief",
        scorer=None,
        autoreset_mode="Disabled",
        **({"max_turns": 4, "max_searches": 3} | environment),
    )
    rollout = Rollout(env, WrittenEngine(reply), Chat(policy.tokenizer), max_action_tokens=6, max_episode_tokens=limit)
    return rollout(tasks, 0.5), asked


def test_an_episode_is_recorded_as_it_was_written() -> None:
    [episode], asked = played([SCRIPT], format_penalty=0.25)
    search, invalid, answer = episode.turns
    block = "<information> w0 : w0 w7 w3 w13 : w13 w0 w16 </information>"
    assert search == Turn(
        context_ids=PROMPT,
        action_ids=(3, 9, 4),
        action_logprobs=(-1.0,) * 3,
        action=ActionKind.SEARCH,
        reward=0.0,
        state_key="Question: w0 w1\n",
        query="w0",
        passage_ids=("p0", "p13"),
    )
    assert invalid == Turn(
        context_ids=FOUND,
        action_ids=(14, 14),
        action_logprobs=(-1.0,) * 2,
        action=ActionKind.INVALID,
        reward=0.0,
        state_key=block,
        format_ok=False,
    )
    assert answer == Turn(
        context_ids=CORRECTIVE,
        action_ids=(5, 16, 6),
        action_logprobs=(-1.0,) * 3,
        action=ActionKind.ANSWER,
        reward=0.75,  # the score less a penalty for the turn that broke the format
        state_key="<invalid>",
        answer="w7",
    )
    assert episode == Episode(
        group=3,
        question_id="q0",
        seed=11,
        turns=(search, invalid, answer),
        outcome=0.75,
        stop=StopReason.ANSWERED,
        gold_answers=("w7", "w0"),
        score=1.0,
        em=1.0,
        f1=1.0,
        searches=1,
        answer="w7",
        supporting=("p0",),
    )
    # each turn samples behind all that came before, at the asked temperature, from a stream of its own
    assert [request.prompt for request in asked] == [
        PROMPT,
        (*PROMPT, 3, 9, 4, *FOUND),
        (*PROMPT, 3, 9, 4, *FOUND, 14, 14, *CORRECTIVE),
    ]
    assert [request.seed for request in asked] == [11_000_033, 11_000_034, 11_000_035]
    assert {
        (request.sampling.max_tokens, request.sampling.stop, request.sampling.temperature) for request in asked
    } == {(6, ("</search>", "</answer>"), 0.5)}


def test_the_outcome_is_the_sum_of_all_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those before the last turn, as an environment with a reward for each search gives them."""
    advance = SearchQAVectorEnv.advance

    def generous(self: SearchQAVectorEnv, actions: Any) -> Any:
        return {row: step._replace(reward=step.reward + 0.125) for row, step in advance(self, actions).items()}

    monkeypatch.setattr(SearchQAVectorEnv, "advance", generous)
    [episode], _ = played([SCRIPT])
    assert [turn.reward for turn in episode.turns] == [0.125, 0.125, 1.125]
    assert (episode.outcome, episode.score) == (1.375, 1.0)


def test_episodes_of_several_questions_keep_their_own_turns() -> None:
    tasks = (Task(0, "q0", 1), Task(1, "q2", 2), Task(1, "q2", 3))
    scripts = (SCRIPT, ("<answer> w9 </answer>",), ("<answer> w3 </answer>",))
    episodes, _ = played(scripts, tasks)
    assert [(e.group, e.question_id, e.seed, e.num_turns, e.answer, e.outcome) for e in episodes] == [
        (0, "q0", 1, 3, "w7", 1.0),
        (1, "q2", 2, 1, "w9", 1.0),  # gold answers of q2: w9 and w2
        (1, "q2", 3, 1, "w3", 0.0),
    ]


def test_the_turn_limit_closes_with_the_last_observation() -> None:
    [episode], _ = played([SCRIPT], max_turns=1, max_searches=1)
    assert (episode.stop, episode.num_turns, episode.outcome) == (StopReason.MAX_TURNS, 1, 0.0)
    assert episode.closing_ids == FOUND
    assert episode.turn_index == (-1,) * 3 + (0,) * 3 + (-1,) * 12


BEFORE_SECOND = len(PROMPT) + 3 + len(FOUND)
"""Tokens when the second turn begins; it may sample six more."""


@pytest.mark.parametrize(
    ("limit", "turns", "closing"),
    [
        (BEFORE_SECOND + 6, 2, CORRECTIVE),  # the second turn just fits, the third (2 + 1 tokens later) does not
        (BEFORE_SECOND + 5, 1, FOUND),  # one token less: the observation fits, another action behind it would not
        (BEFORE_SECOND, 1, FOUND),  # it just fits
        (BEFORE_SECOND - 1, 1, ()),  # and is left out where it does not
    ],
)
def test_the_token_limit_to_the_token(limit: int, turns: int, closing: tuple[int, ...]) -> None:
    [episode], _ = played([SCRIPT], limit=limit)
    assert (episode.num_turns, episode.closing_ids, episode.stop) == (turns, closing, StopReason.MAX_TOKENS)
    assert episode.num_tokens <= limit


def test_a_prompt_must_leave_room_for_one_action() -> None:
    [episode], _ = played([["<answer> w7 </answer>"]], limit=len(PROMPT) + 6)
    assert episode.stop is StopReason.ANSWERED
    with pytest.raises(
        ConfigError, match=r"max_episode_tokens: got 8, but the prompt of question 'q0' alone has 3 tokens .* add 6;"
    ):
        played([["<answer> w7 </answer>"]], limit=len(PROMPT) + 5)
