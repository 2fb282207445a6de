"""What is checked before step 0."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2tgpo.envs import Passage, SearchQAVectorEnv
from a2tgpo.envs.retrieval.cache import Cache
from a2tgpo.envs.retrieval.http import HttpRetriever
from a2tgpo.errors import ConfigError, RetrievalError
from a2tgpo.information_gain import Scaffold, Scoring
from a2tgpo.training.preflight import check_retrieval, usable_questions
from a2tgpo.training.rollout import Rollout
from tests.support.small_world import QUESTIONS, small_env, small_rollout
from tests.support.tiny_models import tiny_policy

LONG = replace(QUESTIONS[2], text=" ".join(["w1"] * 50))
UNWRITABLE = replace(QUESTIONS[5], answers=(" ", "<pad>"))


class Down:
    """A search engine outside of this process."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, 0

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [[] for _ in queries]


def env_over(retriever: Any) -> SearchQAVectorEnv:
    env = small_env(2)
    object.__setattr__(env.pool, "retrievers", retriever)
    return env


@pytest.mark.parametrize("error", [RetrievalError("HTTP 503"), ConnectionRefusedError("refused"), TimeoutError("late")])
def test_a_search_engine_that_is_not_there_is_said_at_once(error: Exception, tmp_path: Path) -> None:
    told = rf"environment.retriever: the search engine.* does not answer \({error}\)"
    for retriever in (Down(error), {"": Down(), "other": Down(error)}, Cache(Down(error), tmp_path / "cache", "x")):
        with pytest.raises(RetrievalError, match=told):
            check_retrieval(env_over(retriever))
    with pytest.raises(RetrievalError, match="does not answer"):
        check_retrieval(env_over(HttpRetriever("http://127.0.0.1:9")))


def test_one_that_is_there_is_asked_once_and_one_in_this_process_never() -> None:
    up = Down()
    check_retrieval(env_over(up))
    assert up.asked == 1
    check_retrieval(small_env(2))


def rollout_over(*questions: Any, max_episode_tokens: int = 40) -> Rollout:
    env = small_env(2)
    object.__setattr__(env.pool, "questions", questions)
    object.__setattr__(env.pool, "_index", {question.id: row for row, question in enumerate(questions)})
    rollout = small_rollout(tiny_policy(), max_episode_tokens=max_episode_tokens)
    rollout.env = env
    return rollout


def used(rollout: Rollout, on_bad_question: Any, scaffold: Scaffold | None = Scaffold("<answer>", "</answer>")) -> Any:  # noqa: B008
    return usable_questions(rollout, tiny_policy().tokenizer, Scoring(scaffold), "train", on_bad_question)


def test_questions_that_cannot_be_used_are_listed_before_step_0() -> None:
    rollout = rollout_over(*QUESTIONS[:2], LONG, UNWRITABLE)
    told = (
        r"questions: 2 of 4 of split 'train' cannot be used \('q2': its prompt has 5\d tokens, and an episode room for"
        r" 34 and a turn; 'q5': the tokenizer cannot write its gold answers \[' ', '<pad>'\]\); raise"
        r" rollout.max_episode_tokens .* rollout.on_bad_question 'skip'"
    )
    with pytest.raises(ConfigError, match=told):
        used(rollout, "error")


def test_or_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    rollout = rollout_over(*QUESTIONS[:2], LONG, UNWRITABLE)
    with caplog.at_level(logging.WARNING):
        assert used(rollout, "skip") == tuple(QUESTIONS[:2])
    assert "2 of 4 of split 'train' cannot be used" in caplog.text
    with pytest.raises(ConfigError, match="2 of 2 of split 'train' cannot be used"):
        used(rollout_over(LONG, UNWRITABLE), "skip")


def test_usable_questions_are_all_kept() -> None:
    assert used(rollout_over(*QUESTIONS), "error") == tuple(QUESTIONS)
    assert used(rollout_over(UNWRITABLE), "error", scaffold=None) == (UNWRITABLE,)  # nothing is scored


def test_a_prompt_that_just_fits_is_usable() -> None:
    length = rollout_over(LONG).prompt_lengths([LONG])[0]
    assert used(rollout_over(LONG, max_episode_tokens=length + 6), "error") == (LONG,)
    with pytest.raises(ConfigError, match="1 of 1"):
        used(rollout_over(LONG, max_episode_tokens=length + 5), "error")


def test_a_list_is_cut() -> None:
    questions = [replace(question, answers=("",)) for question in QUESTIONS]
    with pytest.raises(ConfigError, match=r"10 of 10 .*'q4': .*; and 5 more\)"):
        used(rollout_over(*questions), "error")
