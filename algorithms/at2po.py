"""AT2PO's turn objective: credit of whole episodes, trained with one ratio per turn (arXiv 2601.04767)."""

from dataclasses import dataclass

from a2tgpo.algorithms.base import Algorithm, normalize, outcome_workings, over_turns
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnTable


@dataclass(frozen=True, kw_only=True)
class AT2PO(Algorithm):
    """A_{i,k} = (R_i − mean_g R) / (std_g R + 1e-6), population deviation: the value of a leaf.

    The paper samples a tree per question and backs leaf values up to inner nodes. Episodes here are independent chains:
    every node has one child, whose value it takes, so a turn has the value of its episode's leaf. What remains is the
    turn objective, in `loss`.
    """

    loss: LossSpec = LossSpec(ratio="turn", clip_low=3e-3, clip_high=4e-3, aggregation="seq-mean-token-mean")

    def __call__(self, table: TurnTable) -> Credit:
        return Credit.of(over_turns(normalize(table.outcome, table.group, table.mask.any(dim=1), "population"), table))

    def workings(self, table: TurnTable) -> Workings:
        return outcome_workings(table, "population")
