"""The gold answer's probability at the end of episodes, for calibration."""

import math
from collections.abc import Sequence
from dataclasses import replace

from a2tgpo.episode import Episode
from a2tgpo.information_gain.score import Scoring, score_episodes
from a2tgpo.policy import Policy


def final_gold_probabilities(policy: Policy, episodes: Sequence[Episode], scoring: Scoring) -> list[float | None]:
    """e to the mean log-probability of the gold answer's tokens, given everything that an episode saw; `None` for
    failed episodes and where it does not fit.

    Args:
        policy: the one that played the episodes.
        scoring: the run's own; of it, the rule of cuts does not count here.
    """
    everywhere = replace(scoring, cut_rule="observation", only_mixed_groups=False)
    rows = iter(score_episodes(policy, episodes, everywhere, entropy="skip").probabilities.tolist())
    found: list[float | None] = []
    for episode in episodes:
        known = [] if episode.failed else [value for value in next(rows) if not math.isnan(value)]
        found.append(known[-1] if known else None)
    return found
