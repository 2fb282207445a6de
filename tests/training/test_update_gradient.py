"""The gradient of one update, against autograd over the model's plain logits and two loops over rows and tokens; and
the numbers that an update reports, worked out the same way.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from a2tgpo.algorithms import LossSpec
from a2tgpo.algorithms.aggregation import AGGREGATIONS
from a2tgpo.algorithms.ratios import RATIOS
from a2tgpo.batch import Credit, TokenBatch
from a2tgpo.config import UpdateSettings
from a2tgpo.policy import Policy
from a2tgpo.training import update
from a2tgpo.training.score import TrainingBatch
from a2tgpo.training.update import Updater
from tests.support.tiny_models import WORDS, tiny_policy

TURNS = [
    # who sampled the tokens of each row; no two rows are alike
    [-1, -1, 0, 0, -1, 1, 1, 1, -1, 2],
    [-1, 0, -1, 1, 1],
    [-1, -1, 0, 0, -1, 1, -1],
    [-1, 0, 0, 0],
]
GROUP = [0, 0, 1, 1]
# row 0 has credit on every turn, row 1 none on its first, row 2 none on its last, row 3 none at all
ADVANTAGE = [[0.7, -1.2, 0.4], [0.0, 0.9, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
SCALE = [[1.0, 0.5, 2.0], [1.0, 1.5, 1.0], [0.25, 1.0, 1.0], [1.0, 1.0, 1.0]]
WEIGHT = [[1.0, 0.5, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
ONE_STEP = UpdateSettings(mini_batches=1, max_grad_norm=1e9)


def batch_of(policy: Policy, noise: float = 0.3, reference: bool = False) -> TrainingBatch:
    """Rows of random tokens; old log-probabilities are the policy's own and noise."""
    generator = torch.Generator().manual_seed(0)
    width = max(map(len, TURNS))
    turn = torch.tensor([[*row, *[-1] * (width - len(row))] for row in TURNS])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in TURNS])
    ids = torch.randint(3, len(WORDS), turn.shape, generator=generator).where(mask, policy.pad_token_id)
    tokens = TokenBatch(ids, mask, turn, torch.zeros(turn.shape))
    with torch.no_grad():
        logprobs = policy.token_logprobs(tokens).logprobs

    def noisy() -> Tensor:
        return (logprobs + noise * torch.randn(turn.shape, generator=generator)).where(turn >= 0, 0.0)

    tokens = replace(tokens, sampler_logprobs=noisy())
    credit = Credit(torch.tensor(ADVANTAGE), torch.tensor(SCALE), torch.tensor(WEIGHT))
    return TrainingBatch(tokens, noisy(), torch.tensor(GROUP), credit, noisy() if reference else None)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mini-batch, too, may be far from the policy that sampled it."""
    monkeypatch.setattr(update, "RATIO_TOLERANCE", {torch.float32: ("largest", math.inf)})


def updated(
    policy: Policy, batch: TrainingBatch, loss: LossSpec, settings: UpdateSettings
) -> tuple[dict[str, float], list[Tensor]]:
    """The metrics, and the gradient that the optimiser is given in each step; the weights stay as they are."""
    updater, gradients = Updater(policy, settings, loss, 10, 0), list[Tensor]()

    def keep() -> None:
        gradients.append(flat_gradient(policy))

    updater.optimizer.step = keep  # type: ignore[method-assign,assignment]
    return updater(batch, 0), gradients


def flat_gradient(policy: Policy) -> Tensor:
    parameters = policy.model.parameters()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten().clone() for p in parameters])


def detached(value: Tensor) -> float:
    return float(value.detach())


def looped(policy: Policy, batch: TrainingBatch, spec: LossSpec) -> tuple[Tensor, Tensor]:
    """Loss and gradient, by the equations of docs/algorithms/losses.md and nothing of the package."""
    rows_of_losses, trained = list[list[Tensor]](), 0
    for i, turns in enumerate(TURNS):
        ids = batch.tokens.token_ids[i : i + 1, : len(turns)]
        logits = policy.model(ids).logits[0]
        log_p = torch.log_softmax(logits, dim=-1)
        mine = [(t, k) for t, k in enumerate(turns) if k >= 0]
        own = {t: log_p[t - 1, ids[0, t]] for t, _ in mine}
        log_ratio = {t: own[t] - batch.old_logprobs[i, t] for t, _ in mine}
        losses = list[Tensor]()
        for t, k in mine:
            weight = WEIGHT[i][k]
            if weight == 0:
                continue
            span = [s for s, other in mine if spec.ratio == "sequence" or other == k]
            mean = sum(detached(log_ratio[s]) for s in span) / len(span)
            power = log_ratio[t] if spec.ratio == "token" else own[t] - own[t].detach() + mean
            ratio, advantage = power.exp(), ADVANTAGE[i][k]
            low, high = 1 - SCALE[i][k] * spec.clip_low, 1 + SCALE[i][k] * spec.clip_high
            if spec.surrogate == "cispo":
                loss = -detached(ratio.clamp(low, high)) * advantage * own[t]
            else:
                loss = -min(ratio * advantage, ratio.clamp(low, high) * advantage, key=detached)
                if spec.dual_clip is not None and advantage < 0:
                    loss = min(loss, torch.tensor(-spec.dual_clip * advantage), key=detached)
            if spec.importance_cap is not None:
                gap = float(batch.old_logprobs[i, t] - batch.tokens.sampler_logprobs[i, t])
                loss = loss * min(math.exp(gap), spec.importance_cap)
            if batch.reference_logprobs is not None:
                d = batch.reference_logprobs[i, t] - own[t]
                loss = loss + spec.kl_coefficient * {"k1": -d, "k2": d**2 / 2, "k3": d.exp() - d - 1}[spec.kl]
            if spec.entropy_coefficient:
                loss = loss + spec.entropy_coefficient * (log_p[t - 1].exp() * log_p[t - 1]).sum()
            losses.append(weight * loss)
        rows_of_losses.append(losses)
        trained += len(losses)
    rows = [losses for losses in rows_of_losses if losses]
    match spec.aggregation:
        case "token-mean":
            total = sum(sum(losses) for losses in rows) / trained
        case "seq-mean-token-mean":
            total = sum(sum(losses) / len(losses) for losses in rows) / len(rows)
        case "seq-mean-token-sum":
            total = sum(sum(losses) for losses in rows) / len(rows)
        case _:
            assert spec.divisor is not None
            total = sum(sum(losses) / spec.divisor for losses in rows) / len(rows)
    assert isinstance(total, Tensor)
    policy.model.zero_grad()
    torch.autograd.backward(total)
    gradient = flat_gradient(policy)
    policy.model.zero_grad()
    return total.detach(), gradient


SPECS = [
    *[
        LossSpec(ratio=ratio, aggregation=name, divisor=7.0 if name.endswith("norm") else None)
        for ratio in RATIOS
        for name in AGGREGATIONS
    ],
    LossSpec(ratio="turn", clip_low=3e-3, clip_high=4e-3, aggregation="seq-mean-token-mean"),
    LossSpec(surrogate="cispo", clip_low=1.0, clip_high=0.1),
    LossSpec(dual_clip=1.05, clip_low=0.05, clip_high=0.3),
    LossSpec(importance_cap=1.1),
    LossSpec(entropy_coefficient=0.3),
]
WITH_REFERENCE = [LossSpec(kl=kl, kl_coefficient=0.4, ratio="turn") for kl in ("k1", "k2", "k3")]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("spec", [*SPECS, *WITH_REFERENCE], ids=lambda spec: f"{spec.ratio}-{spec.aggregation}")
@pytest.mark.parametrize("micro_batch_tokens", [1, 10_000])
def test_gradient_and_loss_are_those_of_two_loops(spec: LossSpec, micro_batch_tokens: int) -> None:
    policy = tiny_policy()
    batch = batch_of(policy, reference=spec.kl != "none")
    loss, expected = looped(policy, batch, spec)
    metrics, gradients = updated(policy, batch, spec, replace(ONE_STEP, micro_batch_tokens=micro_batch_tokens))
    assert len(gradients) == 1
    assert float(expected.norm()) > 0.1
    torch.testing.assert_close(gradients[0], expected, rtol=1e-4, atol=2e-6 * float(expected.abs().max()))
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5, abs=1e-6)
    assert metrics["grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-5)


def test_gradients_longer_than_the_limit_are_cut_to_it() -> None:
    policy = tiny_policy()
    batch = batch_of(policy, noise=0.0)
    whole, [free] = updated(policy, batch, LossSpec(), ONE_STEP)
    norm = whole["grad_norm"]
    assert norm == pytest.approx(float(free.norm()), rel=1e-5)
    cut, [short] = updated(policy, batch, LossSpec(), replace(ONE_STEP, max_grad_norm=norm / 4))
    assert cut["grad_norm"] == pytest.approx(norm, rel=1e-5)  # what is reported is the norm before
    torch.testing.assert_close(short, free / 4, rtol=1e-4, atol=1e-8)
    _, [same] = updated(policy, batch, LossSpec(), replace(ONE_STEP, max_grad_norm=norm * 1.01))
    assert torch.equal(same, free)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(("micro_batch_tokens", "mini_batches"), [(10_000, 1), (1, 1), (1, 2)])
def test_numbers_of_an_update(micro_batch_tokens: int, mini_batches: int) -> None:
    """Every log-ratio is 0.1; credited are row 0's turns 0 and 2, and row 1's turn 1."""
    policy = tiny_policy()
    batch = batch_of(policy, noise=0.0)
    mine = batch.tokens.turn >= 0
    batch = replace(batch, old_logprobs=(batch.old_logprobs - 0.1).where(mine, 0.0))
    with torch.no_grad():
        logprobs = policy.token_logprobs(batch.tokens).logprobs
    settings = replace(ONE_STEP, micro_batch_tokens=micro_batch_tokens, mini_batches=mini_batches)
    metrics, gradients = updated(policy, batch, LossSpec(clip_low=0.05, clip_high=0.05), settings)
    assert len(gradients) == mini_batches
    assert metrics["grad_norm"] == pytest.approx(sum(float(g.norm()) for g in gradients) / mini_batches, rel=1e-5)
    # rows 0 to 2 are computed (row 3 has no credit): 6 + 3 + 2 tokens, the one of row 2's turn 1 weighing nothing
    assert metrics["trained_tokens"] == 11
    assert metrics["ratio"] == pytest.approx(math.exp(0.1), rel=1e-5)
    assert metrics["kl_to_old"] == pytest.approx(0.1**2 / 2, rel=1e-4)
    # e^0.1 is above 1 + c·0.05 for every c ≤ 2: clipped wherever the advantage is positive
    assert metrics["clip_fraction"] == pytest.approx((2 + 1 + 2) / 11)
    credited = [(0, 2), (0, 3), (0, 9), (1, 3), (1, 4)]
    assert metrics["credited_logprob"] == pytest.approx(
        sum(float(logprobs[place]) for place in credited) / len(credited), rel=1e-5
    )


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("micro_batch_tokens", [1, 10_000])
@pytest.mark.parametrize("mini_batches", [1, 2])
def test_the_loss_is_the_sum_of_its_reported_parts(micro_batch_tokens: int, mini_batches: int) -> None:
    policy = tiny_policy()
    spec = LossSpec(kl="k2", kl_coefficient=0.4, entropy_coefficient=0.3)
    settings = replace(ONE_STEP, micro_batch_tokens=micro_batch_tokens, mini_batches=mini_batches)
    metrics, _ = updated(policy, batch_of(policy, reference=True), spec, settings)
    parts = [metrics[f"loss_{part}"] for part in ("surrogate", "kl", "entropy")]
    assert metrics["loss"] == pytest.approx(parts[0] + 0.4 * parts[1] - 0.3 * parts[2], rel=1e-5)
    whole, _ = updated(policy, batch_of(policy, reference=True), spec, replace(settings, micro_batch_tokens=10**6))
    assert parts == pytest.approx([whole[f"loss_{part}"] for part in ("surrogate", "kl", "entropy")], rel=1e-4)
    assert parts[2] > 1  # the entropy of a distribution over forty words, in nats
    assert metrics["learning_rate"] == settings.learning_rate
    assert metrics["skipped_updates"] == 0


def test_nothing_credited_has_no_probability() -> None:
    policy = tiny_policy()
    batch = batch_of(policy, noise=0.0)
    blamed = replace(batch, credit=replace(batch.credit, advantage=-torch.tensor(ADVANTAGE).abs()))
    metrics, _ = updated(policy, blamed, LossSpec(), ONE_STEP)
    assert math.isnan(metrics["credited_logprob"])


def rows_of_steps(seed: int, steps: list[int]) -> list[list[list[int]]]:
    """Rows of the mini-batches of each training step."""
    policy = tiny_policy()
    batch = batch_of(policy, noise=0.0)
    batch = replace(batch, group=torch.arange(4))
    updater, seen = Updater(policy, replace(ONE_STEP, mini_batches=4), LossSpec(), 10, seed), list[list[int]]()
    original = updater._optimizer_step

    def noted(sample: TrainingBatch, rows: Tensor, *, fresh: bool) -> Any:
        seen.append(rows.tolist())
        return original(sample, rows, fresh=False)

    updater._optimizer_step = noted  # type: ignore[method-assign,assignment]
    found = []
    for step in steps:
        seen.clear()
        updater(batch, step)
        found.append(list(seen))
    return found


def test_every_step_has_its_own_order_of_mini_batches() -> None:
    steps = [0, 1, 2, 3]
    orders = rows_of_steps(0, steps)
    expected = [np.random.default_rng((0, step)).permutation(4).tolist() for step in steps]
    assert [[row for rows in order for row in rows] for order in orders] == expected
    assert rows_of_steps(0, [2]) == [orders[2]]  # whatever came before it
    assert rows_of_steps(1, steps) != orders


def test_every_epoch_has_its_own_order_too_and_only_the_first_mini_batch_is_fresh() -> None:
    policy = tiny_policy()
    batch = replace(batch_of(policy, noise=0.0), group=torch.arange(4))
    settings = replace(ONE_STEP, mini_batches=2, epochs=2)
    updater, seen = Updater(policy, settings, LossSpec(), 10, 0), list[tuple[list[int], bool]]()
    original = updater._optimizer_step

    def noted(sample: TrainingBatch, rows: Tensor, *, fresh: bool) -> Any:
        seen.append((rows.tolist(), fresh))
        return original(sample, rows, fresh=fresh)

    updater._optimizer_step = noted  # type: ignore[method-assign,assignment]
    updater(batch, 0)
    rng = np.random.default_rng((0, 0))
    orders = [rng.permutation(4).tolist() for _ in range(2)]
    assert [rows for rows, _ in seen] == [sorted(half) for order in orders for half in (order[:2], order[2:])]
    assert [fresh for _, fresh in seen] == [True, False, False, False]
