"""The policy loss: values worked out by hand, and what must hold for every batch."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from a2tgpo.algorithms import LossInputs, LossSpec, PolicyLoss, compute_loss, denominators, policy_loss
from a2tgpo.algorithms.aggregation import AGGREGATIONS, total
from a2tgpo.algorithms.ratios import RATIOS, importance_ratio, kl_estimate, merge_equal_turns

properties = settings(max_examples=15, deadline=None)
DIVISOR = {"seq-mean-token-sum-norm": 7.0}


def one_row(
    log_ratios: list[float], advantage: list[float], turn: list[int], **options: Any
) -> tuple[PolicyLoss, Tensor]:
    """Loss of one row whose old log-probabilities are -1, and the gradient with respect to the new ones."""
    logprobs = (torch.tensor([log_ratios]) - 1).requires_grad_()
    turns, clip_scale = torch.tensor([turn]), options.pop("clip_scale", None)
    scale = None if clip_scale is None else torch.tensor([clip_scale])
    result = policy_loss(
        logprobs, torch.full_like(logprobs, -1.0), torch.tensor([advantage]), scale, turns, turns >= 0, **options
    )
    torch.autograd.backward(result.loss)
    assert logprobs.grad is not None
    return result, logprobs.grad[0]


def test_inside_the_clip_range_the_loss_is_minus_ratio_times_advantage() -> None:
    result, gradient = one_row([0.1, -0.1], [2.0, -1.0], [0, 0])
    # (−2·e^.1 + e^−.1)/2
    assert result.loss.item() == pytest.approx((-2 * math.exp(0.1) + math.exp(-0.1)) / 2)
    assert gradient.tolist() == pytest.approx([-math.exp(0.1), math.exp(-0.1) / 2])
    assert result.clip_fraction == 0


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 1.0, -1.3, True),  # above 1 + ε_high with A > 0: cut
        (1.0, -1.0, math.e, False),  # above with A < 0: the larger loss is the plain one
        (-1.0, 1.0, -math.exp(-1), False),
        (-1.0, -1.0, 0.8, True),  # below 1 − ε_low with A < 0: cut
    ],
)
def test_clipping_is_one_sided(log_ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    result, gradient = one_row([log_ratio], [advantage], [0], clip_low=0.2, clip_high=0.3)
    assert result.loss.item() == pytest.approx(loss, rel=1e-6)
    assert bool(result.clipped.all()) == clipped == (gradient[0] == 0)


def test_clip_scale_multiplies_both_widths() -> None:
    above, _ = one_row([1.0], [1.0], [0], clip_low=0.2, clip_high=0.3, clip_scale=[0.5])
    below, _ = one_row([-1.0], [-1.0], [0], clip_low=0.2, clip_high=0.3, clip_scale=[2.0])
    assert above.loss.item() == pytest.approx(-1.15)
    assert below.loss.item() == pytest.approx(0.6)


def test_dual_clip_bounds_the_loss_of_negative_advantages_only() -> None:
    bounded, gradient = one_row([2.0], [-1.5], [0], dual_clip=3.0)
    assert bounded.loss.item() == pytest.approx(4.5)
    assert gradient.tolist() == [0]
    assert one_row([2.0], [1.5], [0], dual_clip=3.0)[0].loss.item() == pytest.approx(-1.8)


def test_sequence_ratio_is_the_geometric_mean() -> None:
    # GSPO: log-ratios .1, −.05, .2 → s = exp(.25/3) = 1.086904, the same for all tokens
    result, gradient = one_row(
        [0.1, -0.05, 0.2], [1.0, 1.0, 1.0], [0, 0, 1], ratio="sequence", aggregation="seq-mean-token-mean"
    )
    assert result.ratio[0].tolist() == pytest.approx([1.086904] * 3, abs=1e-6)
    assert gradient.tolist() == pytest.approx([-1.086904 / 3] * 3, abs=1e-6)


def test_turn_ratio_averages_within_the_turn() -> None:
    result, _ = one_row([0.1, 0.3, 9.0, -0.2], [1.0] * 4, [0, 0, -1, 1], ratio="turn")
    assert result.ratio[0].tolist() == pytest.approx([math.exp(0.2), math.exp(0.2), 1, math.exp(-0.2)], abs=1e-6)


def test_equal_advantages_of_neighbouring_turns_do_not_merge_them() -> None:
    turns, advantage = [0, -1, 1], [0.7, 0.0, 0.7]
    result, _ = one_row([0.1, 0.0, 0.3], advantage, turns, ratio="turn")
    assert result.ratio[0].tolist() == pytest.approx([math.exp(0.1), 1, math.exp(0.3)], abs=1e-6)
    # only the released code's way of finding turns merges them
    spec = LossSpec(ratio="turn", merge_equal_turns=True)
    logprobs, turn = torch.tensor([[0.1, 0.0, 0.3]]), torch.tensor([turns])
    inputs = LossInputs(logprobs, torch.zeros(1, 3), torch.tensor([advantage]), torch.ones(1, 3), turn, turn >= 0)
    assert compute_loss(spec, inputs).ratio[0].tolist() == pytest.approx([math.exp(0.2), 1, math.exp(0.2)], abs=1e-6)


def test_merged_turns_are_runs_of_equal_advantage() -> None:
    turn = torch.tensor([[0, 0, -1, 1, -1, 2, 3]])
    advantage = torch.tensor([[1.0, 1.0, 0.0, 1.0, 0.0, 2.0, 1.0]])
    assert merge_equal_turns(turn, advantage, turn >= 0).tolist() == [[0, 0, -1, 0, -1, 1, 2]]


def test_log_ratios_are_held_within_bounds() -> None:
    assert one_row([500.0], [-1.0], [0])[0].ratio.item() == pytest.approx(math.exp(20), rel=1e-5)
    assert one_row([500.0], [-1.0], [0], ratio="turn")[0].ratio.item() == pytest.approx(math.exp(10), rel=1e-5)
    assert one_row([500.0], [-1.0], [0], ratio="sequence")[0].ratio.item() == pytest.approx(math.exp(10), rel=1e-5)


def test_cispo_clips_the_weight_and_keeps_every_gradient() -> None:
    logprobs = torch.tensor([[0.0, -3.0]], requires_grad=True)
    turn = torch.zeros(1, 2, dtype=torch.long)
    inputs = LossInputs(
        logprobs, torch.full((1, 2), -1.0), torch.tensor([[1.0, -2.0]]), torch.ones(1, 2), turn, turn >= 0
    )
    result = compute_loss(LossSpec(surrogate="cispo", clip_low=1.0, clip_high=0.28), inputs)
    torch.autograd.backward(result.loss)
    # ρ = (e, e^−2) → weights (1.28, e^−2); the gradient is −w·A/2
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == pytest.approx([-1.28 / 2, 2 * math.exp(-2) / 2])
    assert result.clipped.tolist() == [[True, False]]


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.1), ("k2", 0.005), ("k3", 0.00483742)])
def test_kl_estimators(estimator: str, value: float) -> None:
    # log π_θ − log π_ref = .1; k3 = e^−.1 + .1 − 1
    assert kl_estimate(torch.tensor([[0.1]]), torch.zeros(1, 1), estimator).item() == pytest.approx(value, abs=1e-7)


def test_k3_is_bounded() -> None:
    assert kl_estimate(torch.tensor([[-500.0]]), torch.zeros(1, 1), "k3").item() == 10


# two rows with three and one policy tokens and a third without any; token losses are −A
ADVANTAGE = torch.tensor([[1.0, 2.0, 3.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("aggregation", "loss"),
    [
        ("token-mean", -(6 + 5) / 4),
        ("seq-mean-token-mean", -(6 / 3 + 5) / 2),  # the third row counts nowhere
        ("seq-mean-token-sum", -(6 + 5) / 2),
        ("seq-mean-token-sum-norm", -(6 + 5) / 7 / 2),
    ],
)
def test_aggregation(aggregation: str, loss: float) -> None:
    zeros, turn = torch.zeros(3, 3), torch.where(MASK, 0, -1)
    result = policy_loss(
        zeros, zeros, ADVANTAGE, None, turn, MASK, aggregation=aggregation, divisor=DIVISOR.get(aggregation)
    )
    assert result.loss.item() == pytest.approx(loss)


def test_weight_scales_the_loss_and_zero_leaves_every_denominator() -> None:
    zeros, turn = torch.zeros(3, 3), torch.where(MASK, 0, -1)
    weight = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    counts = denominators(MASK, weight)
    assert (counts.tokens, counts.sequences) == (2, 1)
    result = policy_loss(zeros, zeros, ADVANTAGE, None, turn, MASK, aggregation="token-mean", weight=weight)
    assert result.loss.item() == pytest.approx(-(1 + 0.5 * 2) / 2)


def test_kl_entropy_and_importance_weights_join_the_loss() -> None:
    spec = LossSpec(kl="k2", kl_coefficient=0.5, entropy_coefficient=0.1, importance_cap=2.0)
    one = torch.ones(1, 2)
    inputs = LossInputs(
        logprobs=torch.zeros(1, 2),
        old_logprobs=torch.zeros(1, 2),
        advantage=one,
        clip_scale=one,
        turn=torch.zeros(1, 2, dtype=torch.long),
        mask=one.bool(),
        sampler_logprobs=torch.tensor([[-3.0, math.log(2)]]),
        reference_logprobs=torch.tensor([[1.0, 0.0]]),
        entropy=torch.tensor([[2.0, 4.0]]),
    )
    result = compute_loss(spec, inputs)
    # surrogate −(min(e³, 2) + 1/2)/2, distance (1/2 + 0)/2, entropy 3
    assert result.surrogate.item() == pytest.approx(-1.25)
    assert (result.kl.item(), result.entropy.item()) == pytest.approx((0.25, 3.0))
    assert result.loss.item() == pytest.approx(-1.25 + 0.5 * 0.25 - 0.1 * 3.0)
    assert result.sampler_weight[0].tolist() == pytest.approx([math.exp(3), 0.5])


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Tensor]:
    """A mini-batch of up to five rows of seven tokens: turns with gaps between them, some rows without any policy
    token.
    """
    rows = draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**16))
    noise = torch.Generator().manual_seed(seed)
    turn = torch.tensor(
        [
            draw(st.sampled_from([[0, 0, -1, 1, 1, -1, 2], [-1, 0, -1, 1, -1, -1, -1], [0] * 7, [-1] * 7]))
            for _ in range(rows)
        ]
    )
    per_turn = torch.randn(rows, 3, generator=noise)
    scale, weight = torch.rand(rows, 3, generator=noise) + 0.5, torch.randint(0, 3, (rows, 3), generator=noise) / 2

    def spread(values: Tensor) -> Tensor:
        return values.gather(1, turn.clamp(min=0)).where(turn >= 0, 0.0)

    return {
        "logprobs": torch.randn(rows, 7, generator=noise) * 0.3 - 1,
        "old_logprobs": torch.randn(rows, 7, generator=noise) * 0.3 - 1,
        "advantage": spread(per_turn),
        "clip_scale": spread(scale),
        "turn": turn,
        "mask": turn >= 0,
        "weight": spread(weight),
    }


def run(batch: dict[str, Tensor], ratio: str, aggregation: str, **options: Any) -> tuple[PolicyLoss, Tensor]:
    logprobs = batch["logprobs"].clone().requires_grad_()
    arguments: dict[str, Any] = {**batch, "logprobs": logprobs, **options}
    result = policy_loss(
        **arguments, ratio=ratio, aggregation=aggregation, divisor=DIVISOR.get(aggregation), dual_clip=3.0
    )
    torch.autograd.backward(result.loss)
    assert logprobs.grad is not None
    return result, logprobs.grad


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("ratio", RATIOS)
@properties
@given(batch=batches(), size=st.integers(1, 4))
def test_the_loss_does_not_depend_on_the_micro_batch_split(
    ratio: str, aggregation: str, batch: dict[str, Tensor], size: int
) -> None:
    expected, expected_gradient = run(batch, ratio, aggregation)
    parts = [
        {name: value[start : start + size] for name, value in batch.items()}
        for start in range(0, len(batch["turn"]), size)
    ]
    whole = total([denominators(part["mask"], part["weight"]) for part in parts])
    assert whole == denominators(batch["mask"], batch["weight"])
    results = [run(part, ratio, aggregation, whole=whole) for part in parts]
    assert sum(result.loss.item() for result, _ in results) == pytest.approx(expected.loss.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(
        torch.cat([gradient for _, gradient in results]), expected_gradient, atol=1e-7, rtol=1e-5
    )


@pytest.mark.parametrize("ratio", RATIOS)
@properties
@given(batch=batches(), columns=st.integers(1, 3))
def test_padding_tokens_changes_nothing(ratio: str, batch: dict[str, Tensor], columns: int) -> None:
    expected, expected_gradient = run(batch, ratio, "seq-mean-token-mean")
    rows = len(batch["turn"])
    fill = {"turn": torch.full((rows, columns), -1), "mask": torch.zeros(rows, columns, dtype=torch.bool)}
    wide = {
        name: torch.cat([value, fill.get(name, torch.full((rows, columns), 3.0))], 1) for name, value in batch.items()
    }
    result, gradient = run(wide, ratio, "seq-mean-token-mean")
    assert result.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradient[:, :7], expected_gradient)
    assert bool((gradient[:, 7:] == 0).all())


@pytest.mark.parametrize("ratio", RATIOS)
@properties
@given(batch=batches())
def test_what_lies_outside_the_mask_never_matters(ratio: str, batch: dict[str, Tensor]) -> None:
    expected, expected_gradient = run(batch, ratio, "token-mean")
    dirty = {
        name: value if value.dtype in (torch.long, torch.bool) else value.where(batch["mask"], float("nan"))
        for name, value in batch.items()
    }
    dirty["old_logprobs"] = dirty["old_logprobs"].where(batch["mask"], -math.inf)
    result, gradient = run(dirty, ratio, "token-mean")
    assert result.loss.item() == expected.loss.item()
    assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("ratio", RATIOS)
@properties
@given(batch=batches(), silent=st.integers(0, 2))
def test_a_turn_of_zero_credit_gets_zero_gradient(ratio: str, batch: dict[str, Tensor], silent: int) -> None:
    quiet = batch["turn"] == silent
    _, gradient = run({**batch, "advantage": batch["advantage"].where(~quiet, 0.0)}, ratio, "seq-mean-token-mean")
    assert bool((gradient[quiet] == 0).all())


@pytest.mark.parametrize("ratio", ["turn", "sequence"])
@properties
@given(batch=batches())
def test_span_ratios_agree_with_the_loop(ratio: str, batch: dict[str, Tensor]) -> None:
    got = importance_ratio(batch["logprobs"], batch["old_logprobs"], batch["turn"], batch["mask"], ratio)
    for i in range(len(got)):
        for t in range(7):
            if not batch["mask"][i, t]:
                assert got[i, t] == 1
                continue
            span = [
                j
                for j in range(7)
                if batch["mask"][i, j] and (ratio == "sequence" or batch["turn"][i, j] == batch["turn"][i, t])
            ]
            mean = sum(float(batch["logprobs"][i, j] - batch["old_logprobs"][i, j]) for j in span) / len(span)
            assert got[i, t].item() == pytest.approx(math.exp(mean), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": "episode"}, r"LossSpec.ratio: got 'episode', expected one of token, turn, sequence"),
        ({"aggregation": "token_mean"}, r"LossSpec.aggregation: got 'token_mean'.*did you mean 'token-mean'"),
        ({"clip_low": -0.1}, r"LossSpec.clip_low: got -0.1, expected a number of at least 0"),
        ({"clip_high": float("nan")}, r"LossSpec.clip_high: got nan"),
        ({"dual_clip": 0.5}, r"LossSpec.dual_clip: got 0.5, expected a number of at least 1"),
        ({"importance_cap": -1.0}, r"LossSpec.importance_cap: got -1.0"),
        ({"kl": "k4", "kl_coefficient": 0.1}, r"LossSpec.kl: got 'k4', expected one of none, k1, k2, k3"),
        ({"kl": "k3"}, r"LossSpec.kl_coefficient: got 0.0 with kl='k3', expected both or neither"),
        ({"kl_coefficient": 0.1}, r"LossSpec.kl_coefficient: got 0.1 with kl='none'"),
        (
            {"aggregation": "seq-mean-token-sum-norm"},
            r"LossSpec.divisor: got None with aggregation 'seq-mean-token-sum-norm'",
        ),
        ({"divisor": 3.0}, r"LossSpec.divisor: got 3.0 with aggregation 'token-mean'"),
        ({"surrogate": "ppo"}, r"LossSpec.surrogate: got 'ppo', expected one of clip, cispo"),
    ],
)
def test_bad_specs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossSpec(**options)


def test_a_policy_token_without_a_turn_is_refused() -> None:
    zeros = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="turn: got -1 on a policy token"):
        policy_loss(zeros, zeros, zeros, zeros, torch.tensor([[0, -1]]), torch.ones(1, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        (LossSpec(kl="k3", kl_coefficient=0.1), "reference_logprobs"),
        (LossSpec(importance_cap=2.0), "sampler_logprobs"),
        (LossSpec(entropy_coefficient=0.1), "entropy"),
    ],
)
def test_what_the_spec_needs_must_be_given(spec: LossSpec, missing: str) -> None:
    zeros = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=f"policy loss: {missing}: got None"):
        compute_loss(
            spec,
            LossInputs(
                zeros, zeros, zeros, zeros, torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool)
            ),
        )
