"""What an algorithm answers is looked at before it is used, and a misspelt name answered with the nearest one."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from a2tgpo.algorithms import ALGORITHMS, GRPO, Algorithm, LossSpec, checked_credit
from a2tgpo.batch import Credit, TurnTable
from tests.support.tables import make_table

TABLE = make_table([1, 0], [2, 1])
GOOD = Credit.of(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))


@dataclass(frozen=True, kw_only=True)
class Mine(Algorithm):
    """An algorithm from a file of its own."""

    answer: Callable[[TurnTable], object]

    def __call__(self, table: TurnTable) -> Credit:
        return self.answer(table)  # type: ignore[return-value]


def test_good_credit_is_passed_on_as_it_is() -> None:
    assert checked_credit(Mine(answer=lambda _: GOOD), TABLE) is GOOD


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "Mine.__call__: got NoneType, expected Credit; end it with `return Credit.of(advantage)`"),
        (GOOD.advantage, "Mine.__call__: got Tensor, expected Credit"),
        (
            Credit.of(torch.zeros(3, 2)),
            "Mine: Credit.advantage: got torch.float32 of shape (3, 2), expected floats of shape (2, 2), one per",
        ),
        (
            replace(GOOD, advantage=torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])),
            "Mine: Credit.advantage: got nan for turn 0 of episode 1, expected a finite number",
        ),
        (
            replace(GOOD, advantage=torch.tensor([[1.0, float("-inf")], [1.0, 0.0]])),
            "Mine: Credit.advantage: got -inf for turn 1 of episode 0, expected a finite number",
        ),
        (
            replace(GOOD, weight=torch.tensor([[1.0, 1.0], [-0.5, 1.0]])),
            "Mine: Credit.weight: got -0.5 for turn 0 of episode 1, expected a finite number of at least 0",
        ),
        (
            replace(GOOD, clip_scale=torch.tensor([[1.0, -1.0], [1.0, 1.0]])),
            "Mine: Credit.clip_scale: got -1 for turn 1 of episode 0, expected a finite number of at least 0",
        ),
    ],
)
def test_an_answer_that_no_loss_can_use_is_refused(answer: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked_credit(Mine(answer=lambda _: answer), TABLE)
    assert str(caught.value).startswith(message)


def test_what_stands_where_no_turn_is_does_not_matter() -> None:
    credit = replace(GOOD, advantage=torch.tensor([[1.0, 2.0], [3.0, float("nan")]]))
    assert checked_credit(Mine(answer=lambda _: credit), TABLE) is credit


def test_no_weight_at_all_is_fine() -> None:
    credit = replace(GOOD, weight=torch.zeros(2, 2), clip_scale=torch.zeros(2, 2))
    assert checked_credit(Mine(answer=lambda _: credit), TABLE) is credit


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(
        ValueError, match=r"algorithm: got 'gprpo', expected one of a2tgpo, igpo, .*; did you mean 'grpo'\?$"
    ):
        ALGORITHMS["gprpo"]
    assert ALGORITHMS.get("gprpo") is None
    assert "gprpo" not in ALGORITHMS
    assert ALGORITHMS["grpo"] is GRPO


def test_a_misspelt_field_of_a_loss_too() -> None:
    with pytest.raises(
        ValueError, match=r"LossSpec: got unknown parameter 'clip_hihg', expected one of .*; did you mean 'clip_high'"
    ):
        LossSpec(clip_hihg=0.3)  # type: ignore[call-arg]
