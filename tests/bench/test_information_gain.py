"""The benches at toy size: the numbers are sound, whatever the machine's speed."""

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig

from a2tgpo.bench import Cost, Shape, bench_episodes, costs_of
from a2tgpo.bench.gain import PAIRS, PROBES, bench_information_gain
from a2tgpo.bench.update import BARE, STEP, TRAINING, UpdateBench, bench_update

TOY = LlamaConfig(
    vocab_size=60,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)


def test_episodes_have_the_asked_shape() -> None:
    shape = Shape(tokens=200, searches=3, action_tokens=7, episodes=5, shortest=0.5)
    episodes = bench_episodes(shape, 60)
    assert [episode.num_tokens for episode in episodes] == [100, 125, 150, 175, 200]
    assert {episode.num_turns for episode in episodes} == {4}
    assert {len(turn.action_ids) for episode in episodes for turn in episode.turns} == {7}
    assert {episode.gold_answers for episode in episodes} == {("t5 t6 t7 t8 t9 t10 t11 t12",)}
    with pytest.raises(ValueError, match="expected at least 32 for 3 searches"):
        Shape(tokens=40, searches=3, action_tokens=7, shortest=0.5)


def test_information_gain_bench() -> None:
    bench = bench_information_gain(TOY, Shape(tokens=256, searches=4, action_tokens=8, episodes=2), repeats=1)
    assert bench.probe_tokens == 2 * 5 * 8  # per cut one scaffold token and seven of eight gold tokens
    assert bench.token_share == pytest.approx(80 / 512)
    assert bench.difference < 1e-5
    assert "the probes add 15.6% tokens, target 4%, missed" in str(bench)
    assert len(bench.pair[PROBES].work) == PAIRS * len(bench.costs[PROBES].work)
    assert PROBES in str(bench)


def test_update_bench() -> None:
    bench = bench_update(
        TOY,
        Shape(tokens=40, searches=2, action_tokens=4, shortest=0.5),
        sizes=(8, 16),
        micro_batch_tokens=128,
        mini_batches=2,
        repeats=1,
    )
    assert list(bench.costs) == [(size, way) for size in (8, 16) for way in (BARE, TRAINING, STEP)]
    assert bench.tokens[8] == 8 * 30
    assert [len(bench.costs[size, STEP].work) for size in (8, 16)] == [1, 1]
    assert bench.ratio(16, BARE) == 1.0
    assert STEP in str(bench)


def test_update_bench_judges_by_its_worst_size() -> None:
    def cost(*work: float) -> Cost:
        return Cost(work, work, peak_bytes=None)

    of_8 = {(8, BARE): cost(1.0, 2.0, 1.0), (8, TRAINING): cost(1.2, 2.2, 1.0), (8, STEP): cost(1.4, 2.8, 1.4)}
    of_16 = {(16, BARE): cost(2.0, 4.0, 2.0), (16, TRAINING): cost(2.0, 4.0, 2.0), (16, STEP): cost(2.5, 4.8, 2.5)}
    bench = UpdateBench(of_8 | of_16, {8: 100, 16: 200}, "")
    assert bench.ratio(8, TRAINING) == pytest.approx(1.1)  # 1.2, 1.1 and 1.0 times the bare work of the same round
    assert bench.ratio(16, STEP) == pytest.approx(1.25)
    assert bench.spread == pytest.approx(0.12)  # twice the tokens in 2.5 / 1.4 times the time, by the middle rounds
    assert bench.noise == pytest.approx(1.2)  # 2.2 / 1.0 - 1
    text = str(bench)
    assert "loss + backward + optimiser: at most 1.10 of bare, target 1.10, met" in text
    assert "whole step: at most 1.40 of bare, target 1.45, met" in text
    assert "tokens/s of the whole step: 12% apart, target 10%, missed" in text
    assert "rounds of the same work: up to 120% apart; run it again" in text


def test_small_batches_are_measured_more_often() -> None:
    bench = bench_update(
        TOY,
        Shape(tokens=24, searches=1, action_tokens=4, gold_tokens=1),
        sizes=(2, 16),
        micro_batch_tokens=128,
        repeats=2,
    )
    assert [len(bench.costs[size, BARE].work) for size in (2, 16)] == [4, 2]  # 16 // 8 rounds in each of the two


def test_a_group_of_one_is_no_training() -> None:
    with pytest.raises(ValueError, match=r"bench\.sizes: got \[9\], expected groups of eight"):
        bench_update(TOY, sizes=(8, 9))


@pytest.mark.parametrize(("rounds", "low", "high"), [(5, 1, 5), (6, 1, 6), (10, 2, 9), (25, 8, 18)])
def test_range_of_a_multiple(rounds: int, low: int, high: int) -> None:
    # of n rounds the middle lies outside [k-th, (n + 1 - k)-th] with probability 2 P(B(n, 1/2) < k): for 10 and k = 2 2
    # · 11 / 1024 = 0.021, for k = 3 0.109
    plain = Cost((1.0,) * rounds, (1.0,) * rounds, peak_bytes=None)
    other = Cost(plain.wall, tuple(float(number) for number in range(rounds, 0, -1)), peak_bytes=None)
    assert other.times_range(plain) == (low, high)


def test_costs_are_measured_per_way_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, work = [0.0], [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: wall[0])
    monkeypatch.setattr("time.process_time", lambda: work[0])

    def taking(*seconds: float) -> Callable[[], None]:
        rounds = iter(seconds)

        def way() -> None:
            took = next(rounds)
            wall[0] += took
            work[0] += took / 2

        return way

    # the first round warms up
    costs = costs_of({"short": taking(9, 1, 2, 3), "long": taking(9, 6, 4, 5)}, 3, torch.device("cpu"))
    assert (costs["short"].wall, costs["long"].wall) == ((1, 2, 3), (6, 4, 5))
    assert (costs["short"].work, costs["long"].work) == ((0.5, 1, 1.5), (3, 2, 2.5))
    assert (costs["short"].seconds, costs["long"].work_seconds) == (2, 2.5)


@pytest.mark.parametrize(
    ("device", "message"),
    [("banana", "got 'banana', expected 'cpu', 'cuda'"), ("cuda:99", "got 'cuda:99', but this machine shows")],
)
def test_unknown_device_is_named(device: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"device: {message}"):
        bench_information_gain(TOY, device=device)


def test_unknown_dtype_is_named() -> None:
    with pytest.raises(ValueError, match=r"bench\.dtype: got 'float8', expected one of"):
        bench_information_gain(TOY, dtype="float8")
