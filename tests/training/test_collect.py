"""Which groups a step trains on, when an algorithm rolls out more than it wants."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2tgpo.algorithms import DAPO, GRPO, Algorithm
from a2tgpo.config import RolloutSettings, UpdateSettings
from a2tgpo.engines.base import Request
from a2tgpo.episode import Episode
from a2tgpo.training.collect import collect
from a2tgpo.training.questions import QuestionStream
from a2tgpo.training.run import Run
from tests.support.learners import small_run
from tests.support.small_world import QUESTIONS
from tests.support.tiny_models import WORDS, tiny_policy
from tests.support.written_engine import WrittenEngine

IDS = {word: index for index, word in enumerate(WORDS)}


@contextmanager
def run_with(folder: Path, algorithm: Algorithm, mixed: Collection[str]) -> Iterator[tuple[Run, list[str]]]:
    """A run whose policy answers questions in `mixed` right every other time, and all others wrong; and the questions
    that were played, as they are asked.
    """
    asked: list[str] = []

    def reply(request: Request) -> tuple[int, ...]:
        word = WORDS[request.prompt[1]]  # "Question: w3 w4": w3 is a gold answer of q3
        asked.append(f"q{word[1:]}")
        right = asked[-1] in mixed and request.seed % 2 == 0
        return IDS["<answer>"], IDS[word if right else "w30"], IDS["</answer>"]

    settings = RolloutSettings(questions=2, group_size=2)
    with small_run(folder, tiny_policy(), algorithm, settings, UpdateSettings(mini_batches=1), 1) as run:
        run.parts.train.rollout.engine = WrittenEngine(reply)
        yield run, asked


def groups(episodes: list[Episode]) -> dict[int, str]:
    """Number of each group → its question; every group is whole and alone in its place."""
    found = {episode.group: episode.question_id for episode in episodes}
    assert [episode.group for episode in episodes] == [group for group in sorted(found) for _ in range(2)]
    assert all(found[episode.group] == episode.question_id for episode in episodes)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_informative_groups_are_looked_for_and_kept(tmp_path: Path, seed: int) -> None:
    """Among ten questions two teach anything; they are found in the end, and no question is asked twice."""
    with run_with(tmp_path, DAPO(max_resamples=9), {"q8", "q2"}) as (run, asked):
        kept = groups(collect(run, QuestionStream(QUESTIONS, 2, seed)))
        assert set(kept) == {0, 1}
        assert set(kept.values()) == {"q8", "q2"}
        assert len(asked) == 2 * len(set(asked))


def test_the_first_informative_groups_are_kept_where_there_are_too_many(tmp_path: Path) -> None:
    with run_with(tmp_path, DAPO(), {question.id for question in QUESTIONS}) as (run, asked):
        stream = QuestionStream(QUESTIONS, 2, 0)
        kept = groups(collect(run, stream))
        assert list(kept.values()) == [question.id for question in stream.at(0)]
        assert len(asked) == 3 * 2 * 2  # three times the training batch, once


def test_rolling_out_again_is_bounded_and_the_batch_is_filled_up(tmp_path: Path) -> None:
    with run_with(tmp_path, DAPO(generation_batch=2, max_resamples=1), {"q7"}) as (run, asked):
        stream = QuestionStream(QUESTIONS, 2, 0)
        kept = groups(collect(run, stream))
        missing = 1 if "q7" in asked[: 2 * 4] else 2
        assert len(asked) == 2 * (4 + 2 * missing)
        assert len(kept) == 2
        assert ("q7" in kept.values()) == ("q7" in asked)


def test_without_choice_the_step_asks_the_streams_questions_once(tmp_path: Path) -> None:
    with run_with(tmp_path, GRPO(), ()) as (run, asked):
        stream = QuestionStream(QUESTIONS, 2, 3)
        assert list(groups(collect(run, stream)).values()) == [question.id for question in stream.at(0)]
        assert len(asked) == 4


def test_spare_questions_are_new_and_those_of_the_seed() -> None:
    stream = QuestionStream(QUESTIONS, 4, 0)
    asked = stream.at(0)
    spare = stream.spare(0, 1, 20, asked)
    assert {question.id for question in [*asked, *spare]} == {question.id for question in QUESTIONS}
    assert len(spare) == 6
    assert stream.spare(0, 1, 3, asked) == spare[:3]
    assert stream.spare(0, 2, 20, asked) != spare
    assert stream.spare(0, 1, 0, asked) == []
