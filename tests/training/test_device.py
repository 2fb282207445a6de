"""Rollout, information gain, checks and update on a device that is not the CPU: nothing mixes devices, and the numbers
are the CPU's.
"""

from typing import Any

import pytest
import torch

from a2tgpo import config
from a2tgpo.algorithms import ALGORITHMS, LossSpec
from a2tgpo.batch import Credit
from a2tgpo.envs.scoring.gold_value import Transcript
from a2tgpo.information_gain import Scores, Scoring, score_episodes
from a2tgpo.information_gain.live import PolicyScorer
from a2tgpo.information_gain.metrics import gain_metrics
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Task
from a2tgpo.training.sampler_gap import check_sampler, mismatch_metrics
from a2tgpo.training.score import TrainingBatch
from a2tgpo.training.update import Updater
from tests.support.pretended_device import ELSEWHERE, Elsewhere, pretended_device
from tests.support.small_world import small_rollout
from tests.support.tiny_models import tiny_policy

TASKS = [Task(group, f"q{group}", 10 * group + place) for group in range(4) for place in range(4)]
SCAFFOLD = Scaffold("<answer> ", " </answer>")
LOSSES = {
    "plain": LossSpec(),
    "everything": LossSpec(
        kl="k3", kl_coefficient=0.1, entropy_coefficient=0.01, importance_cap=2.0, ratio="turn", dual_clip=3.0
    ),
}


def step(policy: Policy, loss: LossSpec) -> tuple[Scores, dict[str, float], list[Any]]:
    """One training step with given credit: what was measured, the metrics, the new weights."""
    episodes = small_rollout(policy, 16)(TASKS)
    measured = score_episodes(policy, episodes, Scoring(SCAFFOLD, aliases="mean"))
    check_sampler(measured.tokens, measured.logprobs, torch.float32, 1.0)
    table = ALGORITHMS["a2tgpo"]().tabulate(measured.episodes)
    advantage = torch.randn(table.mask.shape, generator=torch.Generator().manual_seed(0)).where(table.mask, 0.0)
    reference = measured.logprobs if loss.kl != "none" else None
    updater = Updater(
        policy, config.UpdateSettings(learning_rate=1e-2, mini_batches=2, micro_batch_tokens=200), loss, 10, 0
    )
    metrics = updater(
        TrainingBatch(measured.tokens, measured.logprobs, table.group, Credit.of(advantage), reference), 0
    )
    metrics |= gain_metrics(measured) | mismatch_metrics(measured.tokens, measured.logprobs, 2.0)
    weights = [
        weight.held if isinstance(weight, Elsewhere) else weight.data
        for weight in (entry.data for entry in policy.model.parameters())
    ]
    return measured, metrics, weights


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_step_elsewhere_equals_one_on_the_cpu(kind: str, name: str) -> None:
    expected, expected_metrics, expected_weights = step(tiny_policy(kind), LOSSES[name])
    policy = tiny_policy(kind)
    with pretended_device() as moved:
        policy = Policy(moved(policy.model), policy.tokenizer)
        assert policy.device == ELSEWHERE
        measured, metrics, weights = step(policy, LOSSES[name])
        assert measured.logprobs.device == measured.tokens.token_ids.device == ELSEWHERE
        logprobs = measured.logprobs.cpu()
    assert [episode.token_ids for episode in measured.episodes] == [episode.token_ids for episode in expected.episodes]
    torch.testing.assert_close(logprobs, expected.logprobs, atol=1e-5, rtol=0)
    torch.testing.assert_close(measured.values, expected.values, atol=1e-5, rtol=0, equal_nan=True)
    assert metrics == pytest.approx(expected_metrics, abs=1e-5, nan_ok=True)
    assert metrics["trained_tokens"] > 100
    for weight, other in zip(weights, expected_weights, strict=True):
        # Adam turns rounding noise into steps where a gradient is 0
        assert float((weight - other).abs().gt(1e-5).float().mean()) < 0.01


def test_live_gains_elsewhere() -> None:
    policy = tiny_policy()
    transcript, golds = Transcript("w1", "w1 w2 w3 w4", ()), ("w5 w6", "w7")
    expected = PolicyScorer(policy, Chat(policy.tokenizer), Scoring(SCAFFOLD, aliases="max"))(transcript, golds)
    with pretended_device() as moved:
        policy = Policy(moved(policy.model), policy.tokenizer)
        assert PolicyScorer(policy, Chat(policy.tokenizer), Scoring(SCAFFOLD, aliases="max"))(
            transcript, golds
        ) == pytest.approx(expected, abs=1e-5)


def test_mixed_devices_are_found() -> None:
    """Or the tests above prove nothing."""
    with pretended_device():
        there = torch.ones(3, device=ELSEWHERE)
        assert (there + 1).device == there[[0, 2]].device == torch.arange(2, device=there.device).device == ELSEWHERE
        assert there.cpu().device.type == "cpu"
        for mix in (
            torch.add,
            torch.dot,
            torch.minimum,
            lambda one, other: torch.cat([one, other]),
            lambda one, other: other.add_(one),
        ):
            with pytest.raises(RuntimeError, match="got tensors on lazy:0 and on the CPU"):
                mix(there, torch.ones(3))
