"""The paper's propositions (arXiv 2605.06200, appendix D), on the algorithm as it is used.

D.1 Pooling gains of all turns of a question biases a turn's z by its index. D.2 Turn groups do not. D.3 The rescaled
sum has the same variance at every depth where the z are independent, and σ² + (n − 1)δ where they share a covariance δ.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from a2tgpo.algorithms import A2TGPO
from a2tgpo.batch import TurnTable

GROUPS, EPISODES = 4, 6


def table_of(gain: Tensor) -> TurnTable:
    """Episodes of searches with these gains [episode turn], then an answer; groups of six."""
    episodes, turns = len(gain), gain.shape[1] + 1
    mask = torch.ones(episodes, turns, dtype=torch.bool)
    padded = torch.cat([gain, torch.full((episodes, 1), torch.nan)], dim=1)
    zeros = torch.zeros(episodes, turns)
    return TurnTable(
        group=torch.arange(episodes) // EPISODES,
        outcome=torch.zeros(episodes),
        reward=zeros,
        information_gain=padded,
        scored=~padded.isnan(),
        state=zeros.long(),
        num_tokens=mask.long(),
        mask=mask,
    )


def gains(levels: list[float], seed: int) -> Tensor:
    """Gains that differ by turn index on average, as bridging and last hops do, with noise."""
    rng = torch.Generator().manual_seed(seed)
    return torch.tensor(levels) + torch.randn(GROUPS * EPISODES, len(levels), generator=rng)


LEVELS = st.lists(st.floats(-5, 5), min_size=2, max_size=5)


@given(LEVELS, st.integers(0, 2**31))
def test_turn_groups_have_no_bias(levels: list[float], seed: int) -> None:
    """D.2: within every question and turn index the z sum to 0, whatever the turn indices are worth on average."""
    z = A2TGPO().normalized_gain(table_of(gains(levels, seed)))[:, :-1]
    torch.testing.assert_close(
        z.view(GROUPS, EPISODES, -1).mean(dim=1), torch.zeros(GROUPS, len(levels)), atol=1e-5, rtol=0
    )


@given(LEVELS, st.integers(0, 2**31))
def test_a_pool_is_biased_by_turn_index(levels: list[float], seed: int) -> None:
    """D.1: the mean z of turn index k is (mean gain at k − mean gain of the question) / (σ + 1e-6), not 0."""
    gain = gains(levels, seed)
    z = A2TGPO(turn_groups=False).normalized_gain(table_of(gain))[:, :-1]
    by_question = gain.view(GROUPS, EPISODES, -1)
    pooled = by_question.flatten(1)
    deviation = (pooled.var(dim=1, unbiased=False) + 1e-8).sqrt() + 1e-6
    bias = (by_question.mean(dim=1) - pooled.mean(dim=1, keepdim=True)) / deviation[:, None]
    torch.testing.assert_close(z.view(GROUPS, EPISODES, -1).mean(dim=1), bias, atol=1e-4, rtol=1e-4)


def test_the_bias_is_as_large_as_the_levels_are_apart() -> None:
    """Gains of about 0 at the first hop and 9 at the second, as in the embedded world: pooled z of about −1 and +1."""
    z = A2TGPO(turn_groups=False).normalized_gain(table_of(gains([0.0, 9.0], seed=0)))[:, :-1]
    first, second = z.mean(dim=0).tolist()
    assert first < -0.9
    assert second > 0.9


def coefficients(algorithm: A2TGPO, turns: int) -> Tensor:
    """[turn, later turn]: what each z counts in the accumulated gain, which is linear in them."""
    table = table_of(torch.eye(turns))
    table = replace(table, group=torch.zeros(turns, dtype=torch.long))
    z = table.information_gain.nan_to_num()
    return algorithm.accumulated_gain(table, z)[:, :turns].T


@pytest.mark.parametrize("covariance", [0.0, 0.3, 1.0])
def test_variance_over_depth(covariance: float) -> None:
    """D.3: with unit variances and a shared covariance δ, Var = 1 + (n − 1)δ for a sum of n terms: flat for δ = 0."""
    turns = 6
    shared = torch.full((turns, turns), covariance)
    shared.fill_diagonal_(1.0)
    terms = torch.arange(turns, 0, -1)
    rescaled = coefficients(A2TGPO(), turns)
    variance = torch.einsum("ij,jk,ik->i", rescaled, shared, rescaled)
    torch.testing.assert_close(variance, 1 + (terms - 1) * covariance)
    plain = coefficients(A2TGPO(variance_rescaling=False), turns)
    torch.testing.assert_close(
        torch.einsum("ij,jk,ik->i", plain, shared, plain), terms * (1 + (terms - 1) * covariance)
    )
