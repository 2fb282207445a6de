"""IGPO: information gain as the reward of search turns, outcome as the reward of the last turn (arXiv 2510.14967)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from a2tgpo.algorithms.base import (
    discounted_returns,
    group_of_turns,
    last_turn,
    normalize,
    over_turns,
)
from a2tgpo.algorithms.gain import GainAlgorithm
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import choice_field, number_field


@dataclass(frozen=True, kw_only=True)
class IGPO(GainAlgorithm):
    """A_{i,k} = Σ_{j≥k} γ^{j−k} z_{i,j}, z being the normalised reward of a turn.

    Rewards are normalised within the question's group over all turns of all its episodes (population deviation):
    `joint` pools gains and outcomes, `separate` (the released script) pools each on its own. A last turn that has a
    gain as well gets both.
    """

    loss: LossSpec = LossSpec(
        ratio="token",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="seq-mean-token-mean",
        kl="k3",
        kl_coefficient=0.001,
    )
    gain_measure: str = "prob"
    """The paper's gain is a difference of probabilities, so that gains and outcomes, pooled together, share a scale."""
    gamma: float = 1.0
    """γ of the accumulation, in turns."""
    normalization: str = "joint"
    """`joint` or `separate` pools."""
    gain_weight: float = 1.0
    """Multiplies gains before normalisation; it acts under `joint` only, since under `separate` any weight cancels."""
    outcome_weight: float = 1.0
    """The same for outcomes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number_field(self, "gamma", 0.0, 1.0)
        choice_field(self, "normalization", ("separate", "joint"))
        number_field(self, "gain_weight", 0.0)
        number_field(self, "outcome_weight", 0.0)

    def __call__(self, table: TurnTable) -> Credit:
        return Credit.of(discounted_returns(self.turn_rewards(table), self.gamma).where(table.mask, 0.0))

    def turn_rewards(self, table: TurnTable) -> Float[Tensor, "episode turn"]:
        """z: normalised gain on scored turns plus normalised outcome on the last turn; 0 on turns that have neither."""
        gain, outcome = self.gain_weight * table.information_gain, self.outcome_weight * table.outcome
        # one pool row per episode: its turns' gains, then its outcome
        values = torch.cat([gain, outcome[:, None]], dim=1)
        mask = torch.cat([table.scored, table.mask[:, :1]], dim=1)
        pool = torch.cat([group_of_turns(table), table.group[:, None]], dim=1)
        if self.normalization == "separate":
            pool = 2 * pool + torch.cat([torch.zeros_like(table.state), torch.ones_like(table.group[:, None])], dim=1)
        z = normalize(values, pool, mask, "population", floor=self.gain_floor)
        return z[:, :-1] + z[:, -1:].where(last_turn(table), 0.0)

    def workings(self, table: TurnTable) -> Workings:
        rewards = self.turn_rewards(table)
        advantage = discounted_returns(rewards, self.gamma)
        columns = {
            "gain": table.information_gain,
            "outcome": over_turns(table.outcome, table),
            "z": rewards,
            "later": torch.cat([advantage[:, 1:], torch.zeros_like(advantage[:, :1])], dim=1),
        }
        z = (
            "z = gain, and on the last turn the outcome, each less its mean over its std within the question"
            f" ({self.normalization} pools, population std)"
        )
        line = f"A = {{z}} + {self.gamma:g}·{{later}} = {{advantage}}"
        return Workings(columns, (z, f"advantage = z + {self.gamma:g}·advantage of the next turn (later)"), line, line)


@dataclass(frozen=True, kw_only=True)
class IGPOReleased(IGPO):
    """IGPO as its public launch script runs it (code of February 2026): mean log-probabilities, separate pools, dual
    clip, sums over tokens.
    """

    loss: LossSpec = LossSpec(
        ratio="token",
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
        aggregation="seq-mean-token-sum",
        kl="k3",
        kl_coefficient=0.001,
        entropy_coefficient=0.001,
    )
    gain_measure: str = "logprob"
    normalization: str = "separate"
