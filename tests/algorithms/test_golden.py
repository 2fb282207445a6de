"""Parity with the public reference implementations: all 186 recorded cases, to 1e-4."""

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from a2tgpo.algorithms import ALGORITHMS, policy_loss
from a2tgpo.batch import TurnTable, spread
from tests.conftest import DATA

GOLDEN = DATA / "golden_credit_and_loss.json.gz"
TOLERANCE = 1e-4
CASES: list[dict[str, Any]] = json.loads(gzip.decompress(GOLDEN.read_bytes()))["cases"]


def padded(rows: Sequence[Sequence[float]], width: int, fill: float) -> Tensor:
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.float32)


def table_of(case: dict[str, Any]) -> TurnTable:
    lengths, width = case["num_turns"], max(case["num_turns"])
    gains = case.get("information_gain") or [[] for _ in lengths]
    gain = padded(gains, width, float("nan"))
    keys: dict[str, int] = {}
    anchors = case.get("anchors") or [[""] * n for n in lengths]
    states = padded([[keys.setdefault(key, len(keys)) for key in row] for row in anchors], width, 0).long()
    reward = padded(
        [[*[0.0] * (n - 1), outcome] for n, outcome in zip(lengths, case["outcome"], strict=True)], width, 0.0
    )
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return TurnTable(
        torch.tensor(case["groups"]),
        torch.tensor(case["outcome"]),
        reward,
        gain,
        ~gain.isnan(),
        states,
        mask.long(),
        mask,
    )


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=TOLERANCE)


def check_credit(case: dict[str, Any]) -> None:
    table = table_of(case)
    credit = ALGORITHMS[case["algorithm"]](**case["params"])(table)
    width = table.mask.shape[1]
    assert_close(credit.advantage, padded(case["expected_advantage"], width, 0.0))
    assert_close(credit.clip_scale, padded(case.get("expected_clip_scale", [[1.0]] * len(table.group)), width, 1.0))
    assert bool((credit.weight == 1).all())


def check_loss(case: dict[str, Any]) -> None:
    turn = torch.tensor(case["turn_ids"])
    width = int(turn.max()) + 1
    logprobs = torch.tensor(case["logprobs"], requires_grad=True)
    clip_scale = case["turn_clip_scale"] and spread(padded(case["turn_clip_scale"], width, 1.0), turn)
    advantage = spread(padded(case["turn_advantage"], width, 0.0), turn)
    result = policy_loss(
        logprobs,
        torch.tensor(case["old_logprobs"]),
        advantage,
        clip_scale,
        turn,
        turn >= 0,
        ratio=case["ratio"],
        **case["params"],
    )
    torch.autograd.backward(result.loss)
    assert result.loss.item() == pytest.approx(case["expected_loss"], abs=TOLERANCE)
    assert result.clip_fraction == pytest.approx(case["expected_clip_fraction"], abs=TOLERANCE)
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, torch.tensor(case["expected_grad"]), atol=1e-6, rtol=TOLERANCE)


@pytest.mark.parametrize(
    "index",
    range(len(CASES)),
    ids=lambda index: f"{index}-{CASES[index].get('algorithm', 'loss-' + CASES[index].get('ratio', ''))}",
)
def test_golden_case(index: int) -> None:
    case = CASES[index]
    (check_loss if case.get("kind") == "loss" else check_credit)(case)


def test_all_186_golden_cases_are_there() -> None:
    """They lie in the repository, so that a clone proves the numbers; each is a test of its own above."""
    assert len(CASES) == 186
