"""What is reported about the gap between trainer and sampling engine."""

import math

import pytest
import torch

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import NumericalError
from a2tgpo.training.sampler_gap import check_sampler, mismatch_metrics


def batch(sampler: list[list[float]], turn: list[list[int]]) -> TokenBatch:
    turns = torch.tensor(turn)
    return TokenBatch(torch.zeros_like(turns), torch.ones_like(turns, dtype=torch.bool), turns, torch.tensor(sampler))


def test_literal_table() -> None:
    # weights w = π_old/π_sampler of the four policy tokens: 1, 1/2, 3, 1; the tokens with turn -1 are context
    tokens = batch([[9.0, -1.0, -1.0], [-math.log(6), 9.0, -2.0]], [[-1, 0, 0], [0, -1, 1]])
    old = torch.tensor([[0.0, -1.0, -1.0 - math.log(2)], [-math.log(2), 0.0, -2.0]])
    free = mismatch_metrics(tokens, old, None)
    assert free["sampler_mismatch"] == pytest.approx((math.log(2) + math.log(3)) / 4)
    assert free["sampler_mismatch_max"] == pytest.approx(math.log(3))
    assert free["sampler_mismatch_p99"] == pytest.approx(math.log(2))  # place floor(0.99 · 3) = 2 of 0, 0, log 2, log 3
    assert free["sampler_ess"] == pytest.approx(5.5**2 / (4 * (1 + 0.25 + 9 + 1)))  # Σw = 5.5, Σw² = 11.25
    assert free["sampler_capped"] == pytest.approx(0.25)
    capped = mismatch_metrics(tokens, old, 2.0)
    assert capped["sampler_ess"] == pytest.approx(4.5**2 / (4 * (1 + 0.25 + 4 + 1)))  # 3 → 2
    assert capped["sampler_capped"] == pytest.approx(0.25)
    assert mismatch_metrics(tokens, old, 0.9)["sampler_capped"] == pytest.approx(0.75)


def test_equal_engines_have_none() -> None:
    tokens = batch([[-1.0, -2.0]], [[0, 0]])
    found = mismatch_metrics(tokens, tokens.sampler_logprobs, None)
    assert found == {
        "sampler_mismatch": 0,
        "sampler_mismatch_p99": 0,
        "sampler_mismatch_max": 0,
        "sampler_ess": 1,
        "sampler_capped": 0,
    }


def test_other_weights_are_an_error() -> None:
    tokens = batch([[-1.0, -2.0]], [[0, 0]])
    old = torch.tensor([[-1.1, -2.0]])  # mean |Δ| = 0.05
    with pytest.raises(
        NumericalError,
        match=r"engine: its log-probabilities differ from the policy's by 0.05 nats a token, expected at most 0.01",
    ):
        check_sampler(tokens, old, torch.float32, 1.0)
    check_sampler(tokens, old, torch.bfloat16, 1.0)
    check_sampler(tokens, old, torch.float32, 0.7)
    with pytest.raises(NumericalError, match="nan nats"):
        check_sampler(tokens, torch.full_like(old, math.nan), torch.bfloat16, 1.0)
