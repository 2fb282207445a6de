"""Which states count as the same: GiGPO's similarity grouping of state keys, done on text before the table is made."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError


def merge_similar_states(episodes: Sequence[Episode], threshold: float) -> list[Episode]:
    """Replace each state key by that of the first similar enough state of the same group, as verl-agent's similarity
    grouping does.

    Greedy first fit in row order (episodes as given, turns in order): a state joins the first cluster whose first
    member is similar enough, or opens its own.

    Args:
        episodes: in any order; the order decides which state represents a cluster.
        threshold: smallest similarity (difflib ratio, in (0, 1)) of two states that count as one; 0.9 in the search
            recipe.

    Raises:
        ConfigError: if the threshold is not inside (0, 1).
    """
    if not 0 < threshold < 1:
        raise ConfigError(
            f"state similarity: got {threshold}, expected a number between 0 and 1, both excluded; leave it out to"
            " compare states exactly"
        )
    clusters: dict[int, list[str]] = {}
    merged = []
    for episode in episodes:
        if episode.failed:  # it has no turns in the table, so its states must not stand for others
            merged.append(episode)
            continue
        firsts = clusters.setdefault(episode.group, [])
        turns = (replace(turn, state_key=_representative(turn.state_key, firsts, threshold)) for turn in episode.turns)
        merged.append(replace(episode, turns=tuple(turns)))
    return merged


def _representative(state: str, firsts: list[str], threshold: float) -> str:
    for first in firsts:
        if first == state or _is_similar(first, state, threshold):
            return first
    firsts.append(state)
    return state


def _is_similar(first: str, state: str, threshold: float) -> bool:
    matcher = SequenceMatcher(None, first, state)
    # the quick ratios are upper bounds of the real one
    return (
        matcher.real_quick_ratio() >= threshold and matcher.quick_ratio() >= threshold and matcher.ratio() >= threshold
    )
