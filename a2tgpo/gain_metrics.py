"""What the log says about information gain, per turn index."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from a2tgpo.episode import ActionKind, Episode
from a2tgpo.information_gain import Measurement


def gain_metrics(measurement: Measurement) -> dict[str, float]:
    """Per turn index k, over the search turns of all episodes:

    `gain_turn_k` mean; `…_std` spread (population); `…_positive` share above 0; `…_missing` share of the searches without a gain; `…_group_size` scored
    episodes per question, i.e. what turn-group statistics rest on. The same without `_turn_k` for all turns together. Numbers that do not exist are left out.

    `probe_token_share` is what the probes added to the pass, in tokens. Their share of time is close to it (see the bench) and cannot be told apart in a pass.
    """
    episodes = measurement.episodes
    depth = max((episode.num_turns for episode in episodes), default=0)
    metrics = {"probe_token_share": measurement.probe_tokens / max(1, measurement.episode_tokens)} | _of("gain", episodes, range(depth))
    for turn in range(depth):
        metrics |= _of(f"gain_turn_{turn}", episodes, range(turn, turn + 1))
    return metrics


def _of(name: str, episodes: Sequence[Episode], turns: range) -> dict[str, float]:
    searches = [
        (episode.group, turn, episode.turns[turn].information_gain)
        for episode in episodes
        for turn in turns
        if turn < episode.num_turns and episode.turns[turn].action is ActionKind.SEARCH
    ]
    if not searches:
        return {}
    gains = np.array([gain for _, _, gain in searches if gain is not None])
    metrics = {f"{name}_missing": 1 - len(gains) / len(searches)}
    if not len(gains):
        return metrics
    sizes = Counter((group, turn) for group, turn, gain in searches if gain is not None)
    return metrics | {
        name: float(gains.mean()),
        f"{name}_std": float(gains.std()),
        f"{name}_positive": float((gains > 0).mean()),
        f"{name}_group_size": float(np.mean(list(sizes.values()))),
    }
