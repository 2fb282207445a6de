"""A run whose loss asks for the distance to the policy that it started from."""

import copy
from pathlib import Path

import pytest
import torch

from a2tgpo.algorithms import GRPO, LossSpec
from a2tgpo.algorithms.ratios import kl_estimate
from a2tgpo.config import RolloutSettings, UpdateSettings
from a2tgpo.policy import Policy
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.training.loop import train_step
from a2tgpo.training.questions import QuestionStream
from a2tgpo.training.run import Run
from a2tgpo.training.score import ScoredBatch
from tests.support.learners import small_run, starting_policy
from tests.support.small_world import QUESTIONS


def test_the_distance_is_that_to_the_policy_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = starting_policy()
    reference = Policy(copy.deepcopy(policy.model), policy.tokenizer)
    before = reference.weights_hash()
    algorithm = GRPO(loss=LossSpec(kl="k3", kl_coefficient=0.1))
    batches, score = list[ScoredBatch](), Run.score

    def noted(self: Run, *arguments: object, **options: object) -> ScoredBatch:
        batches.append(score(self, *arguments, **options))  # type: ignore[arg-type]
        return batches[-1]

    monkeypatch.setattr(Run, "score", noted)
    settings = RolloutSettings(questions=4, group_size=4), UpdateSettings(learning_rate=3e-3, mini_batches=1)
    with small_run(tmp_path, policy, algorithm, *settings, steps=9, reference=reference) as run:
        stream = QuestionStream(QUESTIONS, 4, seed=0)
        for _ in range(3):
            train_step(run, stream)
    rows = [row for row in read_metrics(tmp_path) if row["kind"] == "train"]
    assert rows[0]["loss_kl"] == pytest.approx(0.0, abs=1e-6)  # still the same policy
    assert rows[2]["loss_kl"] > rows[1]["loss_kl"] > 1e-4
    for row, batch in zip(rows, batches, strict=True):
        mask = batch.scores.tokens.action_mask
        with torch.no_grad():
            distant = reference.token_logprobs(batch.scores.tokens).logprobs
        expected = kl_estimate(batch.scores.logprobs, distant, "k3")[mask].mean()
        assert row["loss_kl"] == pytest.approx(float(expected), rel=1e-3, abs=1e-6)
        assert row["loss"] == pytest.approx(row["loss_surrogate"] + 0.1 * row["loss_kl"], rel=1e-5)
    assert reference.weights_hash() == before != policy.weights_hash()
