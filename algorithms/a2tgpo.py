"""A2TGPO: information gain normalised among turns of the same index, accumulated with a rescaled variance, and a clip
range per turn (arXiv 2605.06200).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms.base import (
    discounted_returns,
    group_moments,
    group_of_turns,
    normalize,
    over_turns,
)
from a2tgpo.algorithms.gain import GainAlgorithm
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import flag_field, number_field
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class A2TGPO(GainAlgorithm):
    """A_{i,t} = α·D_{i,t}/√(m_i − t) + z^R_i on turns with a gain, z^R_i on all others; clip scale c = 1 + β·(2σ(z) −
    1).

    1. z_{i,k}: gain normalised over all episodes of the question at the same turn index k (population deviation).
    2. D_{i,t} = Σ_{j≥t} γ^{j−t} z_{i,j} over the m_i turns of the episode that have a gain, counted t = 0 … m_i − 1.
    3. z^R_i: outcome normalised over the group, added once, neither discounted nor rescaled.
    """

    loss: LossSpec = LossSpec(ratio="turn", clip_low=3e-3, clip_high=4e-3, aggregation="seq-mean-token-mean")
    gamma: float = 1.0
    """γ of the accumulation, in turns with a gain."""
    ig_weight: float = 1.0
    """α, the weight of information gain against the outcome. The paper has none, so 1; 0 leaves the outcome only."""
    clip_modulation: float = 0.3
    """β, at least 0 and below 1: clip widths vary within (1 − β, 1 + β); 0 gives every turn the plain clip range."""
    turn_groups: bool = True
    """Compare gains at the same turn index only? False pools all turns of the question (an ablation)."""
    variance_rescaling: bool = True
    """Divide the sum of m_i − t gains by √(m_i − t)? False leaves the sum as it is (an ablation)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number_field(self, "gamma", 0.0, 1.0)
        number_field(self, "ig_weight", 0.0)
        number_field(self, "clip_modulation", 0.0, 1.0)
        if self.clip_modulation == 1:
            raise ConfigError(
                "A2TGPO.clip_modulation: got 1, expected less: with 1 a turn far below its peers could not move at all"
            )
        flag_field(self, "turn_groups")
        flag_field(self, "variance_rescaling")

    def __call__(self, table: TurnTable) -> Credit:
        z = self.normalized_gain(table)
        outcome = normalize(table.outcome, table.group, table.mask.any(dim=1), "population")
        advantage = self.ig_weight * self.accumulated_gain(table, z) + over_turns(outcome, table)
        return Credit.of(advantage, self.clip_scale(z))

    def normalized_gain(self, table: TurnTable) -> Float[Tensor, "episode turn"]:
        """z_{i,k}; 0 on turns without a gain."""
        gain, groups = table.information_gain, self.gain_groups(table)
        return normalize(gain, groups, table.scored, "population", floor=self.gain_floor)

    def gain_groups(self, table: TurnTable) -> Int[Tensor, "episode turn"]:
        """Number of the group in which a turn's gain is compared: its question and its turn index."""
        group = group_of_turns(table)
        if not self.turn_groups:
            return group
        turns = table.mask.shape[1]
        return group * turns + torch.arange(turns, device=group.device)

    def accumulated_gain(self, table: TurnTable, z: Float[Tensor, "episode turn"]) -> Float[Tensor, "episode turn"]:
        """D_{i,t}/√(m_i − t); 0 on turns without a gain."""
        t = table.scored.cumsum(dim=1) - 1
        accumulated = discounted_returns(z, self.gamma, order=t).where(table.scored, 0.0)
        if not self.variance_rescaling:
            return accumulated
        remaining = table.scored.sum(dim=1, keepdim=True) - t
        return accumulated / remaining.clamp(min=1).sqrt()

    def clip_scale(self, z: Float[Tensor, "episode turn"]) -> Float[Tensor, "episode turn"]:
        """c = 1 + β·(2·sigmoid(z) − 1), from the turn's own z: widest where the turn gained most; 1 without a gain,
        since there z = 0.
        """
        return 1 + self.clip_modulation * (2 * torch.sigmoid(z) - 1)

    def workings(self, table: TurnTable) -> Workings:
        scored, z = table.scored, self.normalized_gain(table)
        mean, std, size = group_moments(table.information_gain, self.gain_groups(table), scored, "population")
        t = scored.cumsum(dim=1) - 1
        columns = {
            "gain": table.information_gain,
            "mean": mean.where(scored, torch.nan),
            "std": std.clamp(min=self.gain_floor).where(scored, torch.nan),
            "size": size.float().where(scored, torch.nan),
            "z": z.where(scored, torch.nan),
            "D": discounted_returns(z, self.gamma, order=t).where(scored, torch.nan),
            "terms": (scored.sum(dim=1, keepdim=True) - t).float().where(scored, torch.nan),
            "zR": over_turns(normalize(table.outcome, table.group, table.mask.any(dim=1), "population"), table),
        }
        floor = f", at least {self.gain_floor:g}" if self.gain_floor else ""
        pool = "episodes at the same turn" if self.turn_groups else "turns"
        divisor, divided = ("/√terms", "/√{terms}") if self.variance_rescaling else ("", "")
        formulas = (
            f"z = (gain − mean)/(std + 1e-6) over the question's {pool} (size values, population std{floor})",
            f"D = z + {self.gamma:g}·D of the next turn with a gain; terms = gains from here on",
            "zR = outcome normalised over the question's episodes (population std)",
            f"advantage = {self.ig_weight:g}·D{divisor} + zR; without a gain: zR",
            f"clip scale = 1 + {self.clip_modulation:g}·(2·sigmoid(z) − 1); without a gain: 1",
        )
        with_gain = f"A = {self.ig_weight:g}·{{D}}{divided} + {{zR}} = {{advantage}}"
        return Workings(columns, formulas, with_gain, "A = zR = {advantage}")
