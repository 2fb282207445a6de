"""An algorithm of your own, in one file that lives anywhere.

    a2tgpo compare quickstart --algorithm examples/my_algorithm.py:MyAlgorithm

Copy this file, change `__call__`, keep the decorator: the fields are the parameters that a recipe may set.
"""

from dataclasses import dataclass
from typing import ClassVar

from a2tgpo.algorithms import Algorithm, LossSpec
from a2tgpo.algorithms.base import group_of_turns, normalize, over_turns
from a2tgpo.batch import Credit, TurnTable


@dataclass(frozen=True, kw_only=True)
class MyAlgorithm(Algorithm):
    """Credit for good searches only: A_{i,k} = z^R_i + bonus · max(0, z_{i,k}), z being the gain normalised over all
    turns of the question.
    """

    needs_information_gain: ClassVar[bool] = True

    loss: LossSpec = LossSpec(ratio="turn", clip_low=0.1, clip_high=0.2, aggregation="seq-mean-token-mean")
    bonus: float = 0.5

    def __call__(self, table: TurnTable) -> Credit:
        outcome = normalize(table.outcome, table.group, table.mask.any(dim=1), "population")
        gain = normalize(table.information_gain, group_of_turns(table), table.scored, "population")
        return Credit.of(over_turns(outcome, table) + self.bonus * gain.clamp(min=0))
