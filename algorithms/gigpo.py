"""GiGPO: compare whole episodes, and compare turns that acted on the same state (arXiv 2505.10978; verl-agent
`core_gigpo`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms.base import (
    Algorithm,
    discounted_returns,
    group_moments,
    group_of_turns,
    normalize,
    over_turns,
)
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.states import merge_similar_states
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnReward, TurnTable, information_gain_of, tabulate
from a2tgpo.checks import choice_field, flag_field, number_field
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GiGPO(Algorithm):
    """A_{i,k} = A^E_i + ω·A^S_{i,k}: the outcome within the question's group plus the discounted return within the
    state's group.

    The state of a turn is the observation that it acted on. A state met once gives A^S = 0; one episode may meet a
    state several times.
    """

    loss: LossSpec = LossSpec(
        ratio="token", clip_low=0.2, clip_high=0.2, aggregation="token-mean", kl="k3", kl_coefficient=0.001
    )
    gamma: float = 0.95
    """γ of the step return G_{i,k} = Σ_{j≥k} γ^{j−k} r_{i,j}."""
    step_weight: float = 1.0
    """ω, the weight of the step term."""
    normalize_std: bool = True
    """Divide both terms by their (sample) deviation: on in the search recipe, off in the code's default."""
    episode_statistics: str = "trajectories"
    """Mean and deviation of A^E over `trajectories` (the paper) or over `turns` (verl-agent, where a long episode
    counts once per turn).
    """

    state_similarity: float = 0.9
    """Treat states as one whose texts are at least this similar (difflib ratio, above 0), as in the authors' search
    setting; 1 = equal texts only.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        number_field(self, "gamma", 0.0, 1.0)
        number_field(self, "step_weight", 0.0)
        flag_field(self, "normalize_std")
        choice_field(self, "episode_statistics", ("trajectories", "turns"))
        number_field(self, "state_similarity", 0.0, 1.0)
        if self.state_similarity == 0:
            raise ConfigError("GiGPO.state_similarity: got 0, expected more: at 0 all states of a question were one")

    def tabulate(self, episodes: Sequence[Episode], turn_reward: TurnReward = information_gain_of) -> TurnTable:
        merged = episodes if self.state_similarity == 1 else merge_similar_states(episodes, self.state_similarity)
        return tabulate(merged, turn_reward)

    def __call__(self, table: TurnTable) -> Credit:
        return Credit.of(self.episode_term(table) + self.step_weight * self.step_term(table))

    def episode_term(self, table: TurnTable) -> Float[Tensor, "episode turn"]:
        """A^E: the outcome normalised over the group."""
        if self.episode_statistics == "turns":
            return normalize(
                over_turns(table.outcome, table), group_of_turns(table), table.mask, "sample", self.normalize_std
            )
        return over_turns(
            normalize(table.outcome, table.group, table.mask.any(dim=1), "sample", self.normalize_std), table
        )

    def step_term(self, table: TurnTable) -> Float[Tensor, "episode turn"]:
        """A^S: the step return normalised over all turns of the group that acted on the same state."""
        returns = discounted_returns(table.reward.where(table.mask, 0.0), self.gamma)
        return normalize(returns, step_groups(table), table.mask, "sample", self.normalize_std)

    def workings(self, table: TurnTable) -> Workings:
        returns = discounted_returns(table.reward.where(table.mask, 0.0), self.gamma)
        mean, std, size = group_moments(returns, step_groups(table), table.mask, "sample")
        columns = {
            "outcome": over_turns(table.outcome, table),
            "AE": self.episode_term(table),
            "state": table.state.float(),
            "return": returns,
            "mean": mean,
            "std": std,
            "size": size.float(),
            "AS": self.step_term(table),
        }
        divided = "/(std + 1e-6)" if self.normalize_std else ""
        pool = "turns of the question's episodes" if self.episode_statistics == "turns" else "question's episodes"
        formulas = (
            f"AE = (outcome − mean){divided} over the {pool} (sample std)",
            f"return = reward + {self.gamma:g}·return of the next turn",
            f"AS = (return − mean){divided} over the question's turns with the same state (size values); 0 if there is"
            " one only",
            f"advantage = AE + {self.step_weight:g}·AS",
        )
        line = f"A = {{AE}} + {self.step_weight:g}·{{AS}} = {{advantage}}"
        return Workings(columns, formulas, line, line)


def step_groups(table: TurnTable) -> Int[Tensor, "episode turn"]:
    """Number of each turn's step group: same question and same state key. Numbers run from 0 without gaps, so that
    memory stays linear.
    """
    states = int(table.state.max()) + 1 if table.state.numel() else 1
    pairs = group_of_turns(table) * states + table.state
    numbers: Tensor = torch.unique(pairs, return_inverse=True)[1]
    return numbers
