"""The gold answer's probability at the end of episodes, for calibration."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from a2tgpo.config import Recipe
from a2tgpo.episode import Episode
from a2tgpo.information_gain import measure
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy


def final_gold_probabilities(
    recipe: Recipe, model: Path, scaffold: tuple[str, str], episodes: Sequence[Episode]
) -> list[float | None]:
    """e to the mean log-probability of the gold answer's tokens, given everything that an episode saw; `None` for
    failed episodes and where it does not fit.

    Args:
        recipe: its aliases setting says which gold answers count.
        model: folder of the policy that played the episodes.
        scaffold: the protocol's text before and after an answer.
    """
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[recipe.model.dtype]
    policy = Policy.load(model, dtype=dtype, device=recipe.model.device)
    played = [place for place, episode in enumerate(episodes) if not episode.failed]
    found: list[float | None] = [None] * len(episodes)
    if not played:
        return found
    settings = recipe.information_gain
    chosen, tokens = [episodes[place] for place in played], recipe.update.micro_batch_tokens
    values = measure(
        policy, chosen, Scaffold(*scaffold), aliases=settings.aliases, measure="prob", micro_batch_tokens=tokens
    ).values
    for place, row in zip(played, values.tolist(), strict=True):
        known = [value for value in row if not math.isnan(value)]
        found[place] = known[-1] if known else None
    return found
