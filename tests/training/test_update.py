"""One optimiser step: micro-batches, mini-batches, checks, and that it does what the gradient says."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from a2tgpo import config
from a2tgpo.algorithms import ALGORITHMS, LossSpec
from a2tgpo.batch import Credit
from a2tgpo.errors import NumericalError
from a2tgpo.policy import Policy
from a2tgpo.training.update import Updater
from tests.support.tiny_models import tiny_policy
from tests.support.updates import SETTINGS, sample_of


def weights_after(settings: config.UpdateSettings, loss: LossSpec, steps: int = 1) -> torch.Tensor:
    policy = tiny_policy()
    updater = Updater(policy, settings, loss, total_steps=10, seed=0)
    sample = sample_of(policy)
    for step in range(steps):
        updater(
            (
                sample
                if step == 0
                else replace(sample, old_logprobs=policy.token_logprobs(sample.tokens).logprobs.detach())
            ),
            step,
        )
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()])


@pytest.mark.parametrize("name", ["grpo", "igpo", "a2tgpo"])
def test_micro_batches_do_not_change_the_step(name: str) -> None:
    """AdamW divides by the gradient's own size, so differences of rounding are compared before it: with plain weights
    after one step at 1e-2.
    """
    loss = replace(ALGORITHMS[name]().loss, kl="none", kl_coefficient=0.0)  # there is no reference here
    whole = weights_after(replace(SETTINGS, micro_batch_tokens=10**6), loss)
    one_by_one = weights_after(replace(SETTINGS, micro_batch_tokens=1), loss)
    start = torch.cat([weight.detach().flatten() for weight in tiny_policy().model.parameters()])
    moved = (whole - start).abs().max()
    assert moved > 1e-3
    # Adam's first steps are lr·sign(g) wherever |g| is far above 1e-8; weights whose gradient is rounding noise may
    # differ by up to 2·lr a step
    differing = ((whole - one_by_one).abs() > 1e-4).float().mean()
    assert differing < 0.01


def gradient_of(policy: Policy, **settings: Any) -> torch.Tensor:
    """The gradient of a step that leaves the weights as they are."""
    updater = Updater(policy, replace(SETTINGS, mini_batches=1, max_grad_norm=1e9, **settings), LossSpec(), 10, 0)
    gradients: list[torch.Tensor] = []

    def keep() -> None:
        gradients.append(
            torch.cat([weight.grad.flatten() for weight in policy.model.parameters() if weight.grad is not None])
        )

    updater.optimizer.step = keep  # type: ignore[method-assign,assignment]
    updater(sample_of(policy), 0)
    assert all(weight.grad is None for weight in policy.model.parameters())  # given back for the rollout
    return gradients[0]


def test_gradient_does_not_depend_on_micro_batches() -> None:
    gradients = [gradient_of(tiny_policy(), micro_batch_tokens=budget) for budget in (10**6, 200, 1)]
    assert gradients[0].abs().max() > 1e-3
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_layers_that_are_computed_again_give_the_same_gradient(kind: str) -> None:
    kept = gradient_of(tiny_policy(kind))
    policy, passes = tiny_policy(kind), []
    policy.model.get_decoder().layers[0].mlp.register_forward_pre_hook(
        lambda *_: passes.append(policy.model.config._attn_implementation)
    )
    again = gradient_of(policy, gradient_checkpointing=True)
    torch.testing.assert_close(again, kept, rtol=1e-4, atol=1e-7)
    # old log-probabilities, forward, and once more for the backward pass; the engine calls no modules
    assert passes == ["a2tgpo"] * 3


def test_a_small_step_arrives_in_mixed_precision() -> None:
    """A rate of 1e-6, as for large models, against weights near 0.25, whose neighbours in bfloat16 are 1e-3 apart."""
    exact = tiny_policy()
    policy = Policy(exact.model, exact.tokenizer, passes_in=torch.bfloat16)
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    metrics = Updater(policy, replace(SETTINGS, learning_rate=1e-6), LossSpec(), 10, 0)(sample_of(policy), 0)
    moved = torch.cat(
        [(weight.detach() - old).abs().flatten() for weight, old in zip(policy.model.parameters(), before, strict=True)]
    )
    assert 5e-7 < float(moved.median()) < 4e-6  # two steps of Adam
    assert metrics["grad_norm"] > 0


def test_probability_of_credited_turns_rises_and_of_blamed_ones_falls() -> None:
    policy = tiny_policy()
    updater = Updater(policy, replace(SETTINGS, learning_rate=1e-3), LossSpec(), 10, 0)
    sample = sample_of(policy)
    updater(sample, 0)
    after = policy.token_logprobs(sample.tokens).logprobs.detach()
    change = after - sample.old_logprobs
    sign = torch.where(
        sample.tokens.action_mask, sample.credit.advantage.gather(1, sample.tokens.turn.clamp(min=0)).sign(), 0.0
    )
    assert float(change[sign > 0].mean()) > 0
    assert float(change[sign < 0].mean()) < 0


def test_every_row_is_in_one_mini_batch_with_its_group() -> None:
    policy = tiny_policy()
    updater = Updater(policy, replace(SETTINGS, mini_batches=3), LossSpec(), 10, 0)
    sample = sample_of(policy)
    import numpy as np

    parts = list(updater._mini_batches(sample, np.random.default_rng(0)))
    assert sorted(torch.cat(parts).tolist()) == list(range(16))
    for part in parts:
        for group in set(sample.group[part].tolist()):
            assert int((sample.group[part] == group).sum()) == 4


def test_old_logprobs_of_other_weights_stop_the_run() -> None:
    policy = tiny_policy()
    updater = Updater(policy, SETTINGS, LossSpec(), 10, 0)
    sample = sample_of(policy)
    with pytest.raises(NumericalError, match="before the first optimiser step"):
        updater(replace(sample, old_logprobs=sample.old_logprobs + 0.01), 0)


def test_non_finite_advantage_stops_before_the_weights_change() -> None:
    policy = tiny_policy()
    before = policy.weights_hash()
    updater = Updater(policy, SETTINGS, LossSpec(), 10, 0)
    sample = sample_of(policy)
    broken = replace(sample, credit=Credit.of(sample.credit.advantage * float("nan")))
    with pytest.raises(NumericalError, match="expected a finite number"):
        updater(broken, 0)
    assert policy.weights_hash() == before


def test_schedule() -> None:
    updater = Updater(
        tiny_policy(), replace(SETTINGS, learning_rate=1.0, warmup_steps=4, schedule="linear"), LossSpec(), 10, 0
    )
    # warm-up (step+1)/4, decay 1 - step/10: 1/4, 2/4·0.9, 3/4·0.8, 1·0.7, …, 1·0.1
    assert [updater.learning_rate(step) for step in (0, 1, 2, 3, 9)] == pytest.approx([0.25, 0.45, 0.6, 0.7, 0.1])


def test_later_mini_batches_clip() -> None:
    policy = tiny_policy()
    updater = Updater(policy, replace(SETTINGS, mini_batches=4), LossSpec(clip_low=1e-3, clip_high=1e-3), 10, 0)
    metrics = updater(sample_of(policy), 0)
    assert 0 < metrics["clip_fraction"] < 1


@pytest.mark.parametrize("loss", [LossSpec(), LossSpec(kl="k3", kl_coefficient=0.3, entropy_coefficient=0.05)])
def test_the_parts_of_the_loss_are_logged(loss: LossSpec) -> None:
    """One mini-batch in many micro-batches; the reference is the policy with all log-probabilities half a nat lower."""
    policy = tiny_policy()
    sample = sample_of(policy)
    if loss.kl != "none":
        sample = replace(sample, reference_logprobs=sample.old_logprobs - 0.5)
    settings = replace(SETTINGS, mini_batches=1, micro_batch_tokens=100)
    metrics = Updater(policy, settings, loss, total_steps=10, seed=0)(sample, 0)
    parts = metrics["loss_surrogate"], metrics["loss_kl"], metrics["loss_entropy"]
    assert metrics["loss"] == pytest.approx(
        parts[0] + loss.kl_coefficient * parts[1] - loss.entropy_coefficient * parts[2], abs=1e-6
    )
    if loss.kl == "none":
        assert parts[1:] == (0.0, 0.0)
    else:
        assert parts[1] == pytest.approx(math.exp(-0.5) - 1 + 0.5, abs=1e-5)  # k3 of a log-ratio of -0.5
        assert 0 < parts[2] < math.log(policy.model.config.vocab_size)
