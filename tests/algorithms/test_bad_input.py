"""Errors as a user meets them: without the run-time shape checks that the test suite switches on."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import torch
from dataclasses import replace
from a2tgpo.algorithms import A2TGPO, DAPO, GRPO, policy_loss
from tests.support.tables import make_table

table = make_table([1.0, 0.0], [2, 2], [[0.1], [0.2]])
row, turn = torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.long)
attempts = [
    lambda: policy_loss(row, torch.zeros(1, 2), row, None, turn, turn >= 0),
    lambda: policy_loss(row, row, torch.zeros(2, 3), None, turn, turn >= 0),
    lambda: policy_loss(row, row, row, None, turn, turn >= 0, clip_low=-1),
    lambda: replace(table, reward=torch.zeros(2, 3)),
    lambda: replace(table, outcome=torch.zeros(3)),
    lambda: GRPO(normalize_std="no"),
    lambda: A2TGPO(gamma="one"),
    lambda: A2TGPO(alpha=0.3),
]
for attempt in attempts:
    try:
        attempt()
    except ValueError as error:
        print(error)
print(A2TGPO(gamma=1, ig_weight=0).ig_weight, DAPO(max_resamples=3.0).max_resamples)
"""

EXPECTED = [
    "policy loss: old_logprobs: got shape (1, 2), expected (1, 3) (episode, token) as `mask` has",
    "policy loss: advantage: got shape (2, 3), expected (1, 3) (episode, token) as `mask` has",
    "LossSpec.clip_low: got -1, expected a number of at least 0",
    "TurnTable.reward: got shape (2, 3), expected (2, 2) (as `mask` has 2 episodes × 2 turns)",
    "TurnTable.outcome: got shape (3,), expected (2,) (as `mask` has 2 episodes × 2 turns)",
    "GRPO.normalize_std: got 'no', expected True or False",
    "A2TGPO.gamma: got 'one', expected a number from 0 to 1",
    (
        "A2TGPO: got unknown parameter 'alpha', expected one of loss, generation_batch, max_resamples,"
        " gain_measure, gain_floor, gamma, ig_weight, clip_modulation, turn_groups, variance_rescaling"
    ),
    "0.0 3",
]


def test_errors_name_field_got_and_expected() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=root)
    assert done.stderr == ""
    got = done.stdout.splitlines()
    assert [line[: len(expected)] for line, expected in zip(got, EXPECTED, strict=True)] == EXPECTED
