"""What the log says about information gain, per turn index."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from a2tgpo.episode import ActionKind, Episode
from a2tgpo.information_gain.score import Scores


def gain_metrics(scores: Scores) -> dict[str, float]:
    """Per turn index k, over the search turns of all episodes:

    `gain_turn_k` mean; `…_std` spread (population); `…_positive` share above 0; `…_missing` share of the searches
    without a gain; `…_group_size` scored episodes per question, i.e. what turn-group statistics rest on. The same
    without `_turn_k` for all turns together. Numbers that do not exist are left out.

    `probe_token_share` is what the probes added to the pass, in tokens. What they added in time cannot be told within a
    pass; see `repeated_pass_metrics`.
    """
    episodes = scores.played
    tokens = sum(episode.num_tokens for episode in episodes)
    depth = max((episode.num_turns for episode in episodes), default=0)
    metrics = {"probe_token_share": scores.probe_tokens / max(1, tokens)} | _of("gain", episodes, range(depth))
    for turn in range(depth):
        metrics |= _of(f"gain_turn_{turn}", episodes, range(turn, turn + 1))
    return metrics


def repeated_pass_metrics(
    run_pass: Callable[[Sequence[Episode], bool], Scores],
    episodes: Sequence[Episode],
    num_tokens: int,
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """`probe_time_share`: time that the probes add to the pass, as a share of the pass without them;
    `probe_time_share_step`: as a share of the whole step; `gain_noise`: largest difference of a gain when its episode
    is scored in the company of half as many others, which is what rounding makes.

    Measured by running the pass over some episodes with probes and without, in turn; of three times each the shortest
    counts, since noise only ever adds.

    Args:
        run_pass: the pass over episodes, with probes if true; done when it returns.
        episodes: of the step, at least one.
        num_tokens: how many of their tokens are enough.
        seconds: what the step took, part by part; `seconds_gain` is its own pass.
    """
    enough = sum(end <= num_tokens for end in accumulate(episode.num_tokens for episode in episodes))
    chosen = episodes[: max(1, enough)]
    times: dict[bool, list[float]] = {True: [], False: []}
    passes: dict[bool, Scores] = {}
    for _ in range(3):
        for probes in times:
            start = time.perf_counter()
            passes[probes] = run_pass(chosen, probes)
            times[probes].append(time.perf_counter() - start)
    apart = run_pass(chosen[: max(1, len(chosen) // 2)], True)
    added = min(times[True]) / min(times[False]) - 1
    return {
        "probe_time_share": added,
        "gain_noise": _difference(passes[True], apart),
        "probe_time_share_step": added / (1 + added) * seconds["seconds_gain"] / sum(seconds.values()),
    }


def _difference(together: Scores, apart: Scores) -> float:
    """Largest difference between the gains of the same turns, over the episodes that both have."""
    pairs = [
        (one.information_gain, other.information_gain)
        for first, second in zip(together.played, apart.played, strict=False)
        for one, other in zip(first.turns, second.turns, strict=True)
    ]
    return max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=0.0)


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
