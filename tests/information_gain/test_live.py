"""What the environment says during a live episode is what the loop computes afterwards."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode

from a2tgpo.envs.protocols import protocol_of
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.scoring.gold_value import Exchange, Transcript
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.envs.vector import SearchQAVectorEnv
from a2tgpo.episode import Episode, StopReason
from a2tgpo.errors import NumericalError, RetrievalError
from a2tgpo.information_gain import Scoring, score_episodes
from a2tgpo.information_gain.live import PolicyScorer
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Rollout, Task
from tests.support.byte_models import byte_policy
from tests.support.written_engine import WrittenEngine, encoder

PROTOCOL = protocol_of("tags")
SCAFFOLD = Scaffold(*PROTOCOL.scaffold)
QUESTIONS = [
    Question("q-1", "Where is the Eiffel Tower?", ("Paris", "París")),
    Question("q-2", "Who founded it?", ("東京",)),
]
SCRIPTS = [
    [
        "<think> hm </think><search> Eiffel Tower </search>",
        "nothing to see",
        "<search> where is it </search>",
        "<answer> Paris </answer>",
    ],
    [
        "<search> broken </search>",
        "<search> founder </search>",
        "<search> year </search>",
        "<search> company </search>",
        "<search> born </search>",
    ],
]


class Retriever:
    """Always the same passage; breaks on one query."""

    corpus_hash = "none"

    def __len__(self) -> int:
        return 5

    def search(self, queries: Sequence[str], k: int) -> list[Any]:
        return [
            (
                RetrievalError("down")
                if query == "broken"
                else [Passage(query, "Köln", f"About {query}: naïve café, 1248.", 1.0)]
            )
            for query in queries
        ]


def scripted(policy: Policy) -> WrittenEngine:
    """Row k writes the lines of script k."""
    lines, encode = [iter(script) for script in SCRIPTS], encoder(policy.tokenizer)
    return WrittenEngine(lambda request: encode(next(lines[request.key])))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("aliases", ["first", "max", "mean"])
def test_live_gains_equal_the_loop(kind: str, aliases: Any) -> None:
    policy = byte_policy(kind, max_tokens=4096)
    chat = Chat(policy.tokenizer)
    scorer = PolicyScorer(policy, chat, Scoring(SCAFFOLD, aliases=aliases))
    env = SearchQAVectorEnv(
        QUESTIONS,
        Retriever(),
        2,
        protocol=PROTOCOL,
        scorer=None,
        autoreset_mode=AutoresetMode.DISABLED,
        top_k=1,
        max_turns=5,
    )
    rollout = Rollout(env, scripted(policy), chat, max_action_tokens=100, max_episode_tokens=4096, replays=0)
    episodes = rollout([Task(0, "q-1", 0), Task(1, "q-2", 1)])
    # its first retrieval broke, so the loop would leave it out; here the other turns are of interest
    assert episodes[1].stop is StopReason.FAILED
    episodes[1] = replace(episodes[1], stop=StopReason.MAX_TURNS)
    measured = score_episodes(policy, episodes, Scoring(SCAFFOLD, aliases=aliases))
    kinds = [[gain is None for gain in _gains(episode)] for episode in measured.episodes]
    assert kinds == [[False, True, False, True], [True, False, False, False, False]]
    single = SearchQAEnv(QUESTIONS, Retriever(), protocol=PROTOCOL, scorer=scorer, top_k=1, max_turns=5)
    for episode, script in zip(measured.episodes, SCRIPTS, strict=True):
        single.reset(options={"question_id": episode.question_id})
        live = [float(single.step(line)[4]["information_gain"]) for line in script]
        assert live == pytest.approx(
            [math.nan if gain is None else gain for gain in _gains(episode)], abs=1e-5, nan_ok=True
        )


def _gains(episode: Episode) -> list[float | None]:
    return [turn.information_gain for turn in episode.turns]


def test_a_transcript_longer_than_the_context_has_no_value() -> None:
    policy = byte_policy(max_tokens=200)
    scorer = PolicyScorer(policy, Chat(policy.tokenizer), Scoring(SCAFFOLD))
    start = Transcript("Where?", "Where is the Eiffel Tower?")
    assert math.isfinite(scorer(start, ("Paris",)))
    assert math.isnan(
        scorer(Transcript("Where?", start.prompt, (Exchange("<search> x </search>", "word " * 300),)), ("Paris",))
    )


def test_bad_golds_and_broken_weights_are_errors() -> None:
    policy = byte_policy(seed=21)
    scorer = PolicyScorer(policy, Chat(policy.tokenizer), Scoring(SCAFFOLD))
    transcript = Transcript("Where?", "Where is it?")
    with pytest.raises(ValueError, match="'Where\\?' has gold answers"):
        scorer(transcript, (" ",))
    torch.nn.init.constant_(policy.model.lm_head.weight, math.nan)
    with pytest.raises(NumericalError, match="nan for the question 'Where\\?'"):
        scorer(transcript, ("Paris",))
