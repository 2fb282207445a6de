"""A2TGPO as its first public code computes it, for parity studies. Never the default: each departure from the paper is
a field.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from a2tgpo.algorithms.a2tgpo import A2TGPO
from a2tgpo.algorithms.base import group_of_turns, last_turn
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.checks import flag_field


@dataclass(frozen=True, kw_only=True)
class A2TGPOReleased(A2TGPO):
    """A2TGPO with the departures of the released code (mode `turn-group-v1d`).

    Segments replace turns there: a turn without a gain of its own belongs to the next turn that has one, and gains are
    compared at equal ordinals, not at equal turn indices. `loss.merge_equal_turns` finds turns by changes of the
    advantage. Two departures are not reproduced: the last gain being measured before its own retrieval result (a matter
    of the scorer), and errors of the scorer being passed over in silence (here they are errors).
    """

    loss: LossSpec = LossSpec(
        ratio="turn", clip_low=3e-3, clip_high=4e-3, aggregation="token-mean", merge_equal_turns=True
    )
    ig_weight: float = 0.3
    """α of the launch scripts; the code's own default is 1."""
    skip_first_search: bool = True
    """The first search gets no gain: the value given the question alone is never computed."""
    drop_zero_gain: bool = True
    """A gain of exactly 0 counts as missing, which shifts the ordinals of later ones."""
    final_gain_in_outcome: bool = True
    """The gain of an episode's last turn (a limit cut it there) is added to the outcome instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("skip_first_search", "drop_zero_gain", "final_gain_in_outcome"):
            flag_field(self, field)

    def __call__(self, table: TurnTable) -> Credit:
        kept = self.kept_gains(table)
        final = kept & last_turn(table) if self.final_gain_in_outcome else torch.zeros_like(kept)
        outcome = table.outcome + table.information_gain.where(final, 0.0).sum(dim=1)
        credit = super().__call__(replace(table, scored=kept & ~final, outcome=outcome))
        source = segment_ends(kept & ~final)
        return Credit.of(
            _take(credit.advantage, source, table), _take(credit.clip_scale, source, table).where(table.mask, 1.0)
        )

    def kept_gains(self, table: TurnTable) -> Bool[Tensor, "episode turn"]:
        """Turns whose gain the released code would have recorded."""
        kept = table.scored
        if self.skip_first_search:
            kept = kept & (table.scored.cumsum(dim=1) > 1)
        if self.drop_zero_gain:
            kept = kept & (table.information_gain != 0)
        return kept

    def gain_groups(self, table: TurnTable) -> Int[Tensor, "episode turn"]:
        """Number of the group in which a gain is compared: its question and its ordinal among the episode's gains."""
        ordinal = (table.scored.cumsum(dim=1) - 1).clamp(min=0)
        return group_of_turns(table) * table.mask.shape[1] + ordinal if self.turn_groups else group_of_turns(table)


def segment_ends(kept: Bool[Tensor, "episode turn"]) -> Int[Tensor, "episode turn"]:
    """For each turn the turn whose credit it takes: the next one with a gain, itself included, or itself if none
    follows.
    """
    position = torch.arange(kept.shape[1], device=kept.device).expand(kept.shape)
    none = kept.shape[1]
    following = position.where(kept, none).flip(1).cummin(dim=1).values.flip(1)
    return following.where(following < none, position)


def _take(
    values: Float[Tensor, "episode turn"], source: Int[Tensor, "episode turn"], table: TurnTable
) -> Float[Tensor, "episode turn"]:
    return values.gather(1, source).where(table.mask, 0.0)
