"""Searches that fail: what is played again, what is left out, and when a run stops."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.config import RolloutSettings, UpdateSettings
from a2tgpo.envs import Passage
from a2tgpo.episode import Episode
from a2tgpo.errors import RetrievalError, RolloutError
from a2tgpo.policy.chat import Chat
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.training.loop import train_step
from a2tgpo.training.questions import QuestionStream
from a2tgpo.training.rollout import Rollout, Task
from a2tgpo.training.score import credit_of
from tests.support.learners import small_run
from tests.support.small_world import QUESTIONS, small_env
from tests.support.tiny_models import WORDS, tiny_policy
from tests.support.written_engine import WrittenEngine

IDS = {word: index for index, word in enumerate(WORDS)}
TASKS = [Task(group, f"q{group}", group) for group in range(6)]


class Flaky:
    """A retriever whose calls of these numbers (from 1) fail."""

    def __init__(self, inner: Any, broken: Sequence[int] | range) -> None:
        self.inner, self.broken, self.calls = inner, broken, 0

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.calls += 1
        if self.calls in self.broken:
            raise RetrievalError(f"call {self.calls}: HTTP 503")
        return self.inner.search(queries, k)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2tgpo.training.rollout.PATIENCE", 0.0)


def break_searches(rollout: Rollout, broken: Sequence[int] | range) -> None:
    object.__setattr__(rollout.env.pool, "retrievers", Flaky(rollout.env.pool.retrievers, broken))


def searcher(broken: Sequence[int] | range, replays: int) -> Rollout:
    """Of a policy that searches in every turn, one episode at a time: three calls each, and a fourth turn."""
    engine = WrittenEngine(lambda _request: (IDS["<search>"], IDS["w1"], IDS["</search>"]))
    rollout = Rollout(
        small_env(1),
        engine,
        Chat(tiny_policy().tokenizer),
        max_action_tokens=6,
        max_episode_tokens=150,
        replays=replays,
    )
    break_searches(rollout, broken)
    return rollout


@pytest.mark.parametrize(
    ("broken", "replays", "failed"),
    [
        ((), 2, []),
        ((5,), 0, ["q1"]),
        ((5,), 1, []),  # the second episode's second search, and then no more
        ((5, 18), 1, []),
        ((5, 20), 1, ["q1"]),  # its second search of the second time, after six episodes of three calls
        ((5, 20), 2, []),
        (range(1, 99), 2, [f"q{row}" for row in range(6)]),
    ],
)
def test_failed_episodes_are_played_again_a_bounded_number_of_times(
    broken: Sequence[int], replays: int, failed: list[str]
) -> None:
    undisturbed = searcher((), 0)(TASKS)
    episodes = searcher(broken, replays)(TASKS)
    assert [episode.question_id for episode in episodes if episode.failed] == failed
    assert [episode.question_id for episode in episodes] == [task.question_id for task in TASKS]
    for episode, expected in zip(episodes, undisturbed, strict=True):
        assert episode.failed or episode == expected


def run_with(folder: Path, broken: Sequence[int] | range, algorithm: str = "a2tgpo", **settings: Any) -> Any:
    policy = tiny_policy()
    rollout = RolloutSettings(questions=4, group_size=3, replays=1, **settings)
    return small_run(folder, policy, ALGORITHMS[algorithm](), rollout, UpdateSettings(mini_batches=2), steps=4)


def searching(run: Any) -> None:
    """Let the run's policy search in its first turn, whatever it was asked, and answer then."""
    turns: dict[tuple[int, ...], int] = {}

    def reply(request: Any) -> Sequence[int]:
        shown = request.prompt.count(IDS["</search>"]) + turns.get(request.prompt, 0)
        word = "search" if shown == 0 else "answer"
        return IDS[f"<{word}>"], IDS[f"w{request.seed % 20}"], IDS[f"</{word}>"]

    for split in (run.parts.train, run.parts.validation):
        split.rollout.engine = WrittenEngine(reply)


def test_an_evaluation_says_on_how_many_questions_it_rests(tmp_path: Path) -> None:
    with run_with(tmp_path, ()) as run:
        searching(run)
        rollout = run.parts.validation.rollout
        rollout.env.num_envs = 1  # so that every question searches by itself
        rollout.replays = run.recipe.rollout.replays
        break_searches(rollout, (3, 7, 11, 12))  # of ten questions two fail; one of them again (11), then call 12
        run.evaluate()
    row = read_metrics(tmp_path, "evaluation")[0]
    assert row["questions"] == 8
    assert row["failed"] == 0.2
    rows = [json.loads(line) for line in (tmp_path / "evaluations" / "step-000000.jsonl").read_text().splitlines()]
    failed = [json.loads(line) for line in (tmp_path / "evaluations" / "failed-000000.jsonl").read_text().splitlines()]
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in (0, 1, 3, 4, 5, 7, 8, 9)]
    assert failed == [
        {"question_id": "q2", "error": "retrieval: call 11: HTTP 503"},
        {"question_id": "q6", "error": "retrieval: call 12: HTTP 503"},
    ]


def test_a_run_stops_when_most_of_an_evaluation_or_step_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with run_with(tmp_path, ()) as run:
        searching(run)
        break_searches(run.parts.train.rollout, range(1, 999))
        told = (
            r"10 of 10 episodes of the evaluation after step 0 failed, also when they were played again \(retrieval:"
            r" call \d+: HTTP 503, 10 times\), expected at most 50% \(rollout.max_failed\); fix what broke, then"
            r" continue with a2tgpo train --resume"
        )
        with pytest.raises(RolloutError, match=told):
            run.evaluate()
        with pytest.raises(RolloutError, match="12 of 12 episodes of step 1 failed"), caplog.at_level(logging.WARNING):
            train_step(run, QuestionStream(QUESTIONS, 4, seed=0))
    assert "12 of 12 episodes failed (retrieval: call" in caplog.text
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("algorithm", ["a2tgpo", "grpo"])
def test_what_failed_has_no_say_in_credit(algorithm: str) -> None:
    chosen = ALGORITHMS[algorithm]()
    played = [
        replace(episode, group=0, outcome=float(place)) for place, episode in enumerate(searcher((), 0)(TASKS[:3]))
    ]
    broken = replace(searcher(range(1, 99), 0)(TASKS[:1])[0], group=0, outcome=1000.0)
    alone, among = credit_of(chosen, played), credit_of(chosen, [*played[:1], broken, *played[1:]])
    for name in ("advantage", "clip_scale", "weight"):
        assert getattr(among, name)[[0, 2, 3]].equal(getattr(alone, name))
    assert not among.weight[1].any()
    assert not among.advantage[1].any()
    nothing: list[Episode] = [broken, broken]
    assert not credit_of(chosen, nothing).weight.any()
