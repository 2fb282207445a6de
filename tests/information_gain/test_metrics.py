import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from a2tgpo.batch import TokenBatch
from a2tgpo.episode import ActionKind, Episode
from a2tgpo.information_gain import Scores
from a2tgpo.information_gain.metrics import gain_metrics, repeated_pass_metrics
from tests.support.plain_gains import ANSWER, INVALID, SEARCH, episode, turn


def played(group: int, *steps: tuple[ActionKind, float | None]) -> Episode:
    return episode(*[replace(turn([1], [2], kind), information_gain=gain) for kind, gain in steps], group=group)


def scores_of(*episodes: Episode) -> Scores:
    nothing = torch.zeros((len(episodes), 0))
    tokens = TokenBatch(nothing.long(), nothing.bool(), nothing.long(), nothing)
    return Scores(episodes, tokens, nothing, nothing, nothing, nothing, probe_tokens=8)


def test_gains_per_turn_index() -> None:
    metrics = gain_metrics(
        scores_of(
            played(0, (SEARCH, 1.0), (SEARCH, -3.0), (ANSWER, None)),
            played(0, (SEARCH, 3.0), (INVALID, None), (SEARCH, None)),
            played(1, (SEARCH, -1.0), (ANSWER, None)),
        )
    )
    assert metrics == pytest.approx(
        {
            "probe_token_share": 0.5,  # 8 beside eight turns of two tokens
            "gain_turn_0": 1.0,  # (1 + 3 - 1) / 3
            "gain_turn_0_std": math.sqrt(8 / 3),  # deviations 0, 2, -2
            "gain_turn_0_positive": 2 / 3,
            "gain_turn_0_missing": 0.0,
            "gain_turn_0_group_size": 1.5,  # two episodes of question 0, one of question 1
            "gain_turn_1": -3.0,
            "gain_turn_1_std": 0.0,
            "gain_turn_1_positive": 0.0,
            "gain_turn_1_missing": 0.0,  # an invalid turn and an answer are no searches
            "gain_turn_1_group_size": 1.0,
            "gain_turn_2_missing": 1.0,
            "gain": 0.0,  # (1 - 3 + 3 - 1) / 4
            "gain_std": math.sqrt(5),  # (1 + 9 + 9 + 1) / 4
            "gain_positive": 0.5,
            "gain_missing": 0.2,  # one of five searches
            "gain_group_size": 4 / 3,  # turn groups of 2, 1 and 1
        }
    )


def test_a_batch_without_search_has_no_gains() -> None:
    assert gain_metrics(scores_of(played(0, (ANSWER, None)))) == {"probe_token_share": 4.0}
    assert gain_metrics(scores_of()) == {"probe_token_share": 8.0}


def test_time_of_the_probes_is_the_shortest_of_each_three_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, seen = [0.0], list[tuple[int, bool]]()
    seconds = {True: iter([9.0, 2.5, 3.0, 99.0]), False: iter([2.0, 8.0, 2.2])}
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def run_pass(episodes: Sequence[Episode], probes: bool) -> Scores:
        seen.append((len(episodes), probes))
        now[0] += next(seconds[probes])
        gain = 1.0 + (len(episodes) < 3) / 8  # scored in less company, it is an eighth larger
        return scores_of(*[played(0, (SEARCH, gain), (ANSWER, None))] * len(episodes))

    episodes = [played(0, (SEARCH, 1.0), (ANSWER, None))] * 5  # 4 tokens each
    laps = {"seconds_rollout": 6.0, "seconds_gain": 5.0, "seconds_update": 9.0}
    metrics = repeated_pass_metrics(run_pass, episodes, num_tokens=13, seconds=laps)
    assert seen == [*[(3, True), (3, False)] * 3, (1, True)]
    # 2.5 / 2 - 1; a fifth of 5 s are 1 s of 20
    assert metrics == pytest.approx({"probe_time_share": 0.25, "probe_time_share_step": 0.05, "gain_noise": 0.125})
    seconds = {True: iter([1.0] * 4), False: iter([1.0] * 3)}
    repeated_pass_metrics(run_pass, episodes, num_tokens=3, seconds=laps)
    assert seen[-1] == (1, True)  # one episode at least
