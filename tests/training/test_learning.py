"""The loop learns: a policy that answers with a random word comes to answer with the right one.

Everything is the real thing, `train_step` with environment, engine, one-pass scoring, algorithm and update; only the
world is ten questions and the model has 30,000 weights.
"""

from pathlib import Path

import pytest

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.config import RolloutSettings, UpdateSettings
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.training.loop import train_step
from a2tgpo.training.questions import QuestionStream
from tests.support.learners import small_run, starting_policy
from tests.support.small_world import QUESTIONS

STEPS = 25


@pytest.mark.parametrize("name", ["grpo", "a2tgpo", "igpo", "gigpo"])
def test_answers_become_right(name: str, tmp_path: Path) -> None:
    rollout = RolloutSettings(questions=5, group_size=12)
    update = UpdateSettings(learning_rate=3e-3, mini_batches=2)
    stream = QuestionStream(QUESTIONS[:5], rollout.questions, seed=0)
    with small_run(tmp_path, starting_policy(), ALGORITHMS[name](), rollout, update, STEPS) as run:
        for _ in range(STEPS):
            train_step(run, stream)
    scores = [row["em"] for row in read_metrics(tmp_path) if row["kind"] == "train"]
    assert len(scores) == STEPS
    before, after = sum(scores[:3]) / 3, sum(scores[-3:]) / 3
    assert before < 0.3  # two of twenty words are right
    assert after > before + 0.3, scores
