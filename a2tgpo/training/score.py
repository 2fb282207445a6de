"""From episodes to what the update learns from: scores, table, credit."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms import Algorithm, checked_credit
from a2tgpo.batch import Credit, TokenBatch, TurnTable
from a2tgpo.episode import Episode
from a2tgpo.information_gain import Scores, Scoring, score_episodes
from a2tgpo.policy import Policy


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """A batch ready for the update: tokens, the log-probabilities that it was sampled with, and credit. Row i is the
    same episode everywhere.
    """

    tokens: TokenBatch
    old_logprobs: Float[Tensor, "episode token"]
    group: Int[Tensor, " episode"]
    credit: Credit
    reference_logprobs: Float[Tensor, "episode token"] | None = None
    """Under the reference policy, where the loss asks for the distance to it."""

    def to(self, device: torch.device) -> "TrainingBatch":
        """The same with groups and credit beside the tokens; algorithms compute on the CPU."""
        credit = Credit(*(getattr(self.credit, entry.name).to(device) for entry in fields(self.credit)))
        return replace(self, group=self.group.to(device), credit=credit)


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """A batch of episodes with everything that is known of it before the update. Rows of tensors are the episodes that
    did not fail, in their order.
    """

    scores: Scores
    table: TurnTable
    credit: Credit
    reference_logprobs: Float[Tensor, "episode token"] | None

    @property
    def training(self) -> TrainingBatch:
        """What the update needs of it."""
        return TrainingBatch(
            self.scores.tokens, self.scores.logprobs, self.table.group, self.credit, self.reference_logprobs
        )


def score_batch(
    policy: Policy,
    episodes: Sequence[Episode],
    scoring: Scoring,
    algorithm: Algorithm,
    reference: Policy | None = None,
) -> ScoredBatch:
    """Scores of the episodes under the policy that sampled them, and the algorithm's credit.

    Args:
        policy: the snapshot that sampled the episodes.
        episodes: in any order, at least one that did not fail. Failed ones pass through unscored: no table, group
            statistic or loss knows of them.
        scoring: what is scored, and how.
        algorithm: gives the credit.
        reference: the policy that the loss measures a distance to, if it does.

    Raises:
        ConfigError, NumericalError: as `score_episodes` and the algorithm.
    """
    scores = score_episodes(policy, episodes, scoring)
    table = algorithm.tabulate(scores.played)
    credit = checked_credit(algorithm, table)
    distant = None
    if reference is not None:
        distant = score_episodes(reference, scores.played, scoring.without_gain(), entropy="skip").logprobs
    return ScoredBatch(scores, table, credit, distant)


def credit_of(algorithm: Algorithm, episodes: Sequence[Episode]) -> Credit:
    """The algorithm's credit with a row for every episode, as trainers want it that cannot leave one out: failed ones
    weigh nothing, and have no say in the others' credit.
    """
    played = [row for row, episode in enumerate(episodes) if not episode.failed]
    shape = (len(episodes), max(episode.num_turns for episode in episodes))
    whole = Credit(torch.zeros(shape), torch.ones(shape), torch.zeros(shape))
    if played:
        credit = checked_credit(algorithm, algorithm.tabulate([episodes[row] for row in played]))
        for entry in fields(credit):
            value = getattr(credit, entry.name)
            getattr(whole, entry.name)[played, : value.shape[1]] = value
    return whole
