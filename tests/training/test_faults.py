"""Faults around a run: what happens, and what is lost (nothing that was saved)."""

import copy
import errno
import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from rich.console import Console

import a2tgpo.run_folder.checkpoint
from a2tgpo import config
from a2tgpo.algorithms import LossSpec
from a2tgpo.batch import Credit
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.envs import Passage
from a2tgpo.episode import Episode, StopReason
from a2tgpo.errors import CheckpointError, NumericalError, RetrievalError
from a2tgpo.policy.chat import Chat
from a2tgpo.run_folder.episodes import read_episodes
from a2tgpo.start.prepare import prepare_model
from a2tgpo.training.loop import train
from a2tgpo.training.rollout import Rollout, Task
from a2tgpo.training.update import Updater
from a2tgpo.training.watchdogs import Watchdog
from tests.support.learners import starting_policy
from tests.support.recipes import small_recipe
from tests.support.small_world import small_env
from tests.support.tiny_models import WORDS, tiny_policy
from tests.support.updates import SETTINGS, sample_of
from tests.support.written_engine import WrittenEngine


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder whose warm start is made."""
    runs = tmp_path_factory.mktemp("runs")
    prepare_model(small_recipe(), runs, Console(quiet=True))
    return runs


@pytest.fixture
def runs(warmed: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(warmed, tmp_path / "runs"))


def nothing(_kind: str, _step: int, _values: Any) -> None:
    pass


class Flaky:
    """A retriever that is down for a while."""

    def __init__(self, inner: Any, broken: range) -> None:
        self.inner, self.broken, self.calls = inner, broken, 0

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.calls += 1
        if self.calls in self.broken:
            raise RetrievalError("server at 127.0.0.1:9 does not answer")
        return self.inner.search(queries, k)  # type: ignore[no-any-return]


def searching_episodes(broken: range, replays: int = 0) -> list[Episode]:
    """Episodes of a policy that searches whatever it reads."""
    policy = tiny_policy()
    ids = {word: index for index, word in enumerate(WORDS)}
    env = small_env(6)
    object.__setattr__(env.pool, "retrievers", Flaky(env.pool.retrievers, broken))
    engine = WrittenEngine(lambda _request: (ids["<search>"], ids["w1"], ids["</search>"]))
    rollout = Rollout(env, engine, Chat(policy.tokenizer), max_action_tokens=6, max_episode_tokens=150, replays=replays)
    return rollout([Task(group, f"q{group}", group) for group in range(6)])


def test_an_episode_with_a_broken_search_is_failed_data_with_its_reason() -> None:
    for episode in searching_episodes(broken=range(2, 3)):
        assert episode.stop is StopReason.FAILED
        assert episode.error == "retrieval: server at 127.0.0.1:9 does not answer"
        assert episode.ended == "max_turns"
        assert [turn.retrieval_failed for turn in episode.turns] == [False, True, False, False]
    assert all(episode.stop is not StopReason.FAILED for episode in searching_episodes(broken=range(0)))


def test_full_disk_while_a_checkpoint_is_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare_model(small_recipe(), runs, Console(quiet=True))
    original, calls = safetensors.torch.save_file, [0]

    def full(*args: Any, **kwargs: Any) -> None:
        calls[0] += 1
        if calls[0] > 2:  # the third checkpoint
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*args, **kwargs)

    monkeypatch.setattr(a2tgpo.run_folder.checkpoint, "save_file", full)
    folder = runs / "kill" / "run"
    with pytest.raises(CheckpointError, match="No space left on device"):
        train(small_recipe(), folder, model, nothing)
    before = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
    assert before
    monkeypatch.setattr(a2tgpo.run_folder.checkpoint, "save_file", original)
    assert train(small_recipe(), folder, model, nothing) is True
    assert not list((folder / "checkpoints").glob(".partial-*"))
    assert train(small_recipe(), runs / "whole", model, nothing) is True
    assert (folder / "model" / "model.safetensors").read_bytes() == (
        runs / "whole" / "model" / "model.safetensors"
    ).read_bytes()


def test_damaged_warm_start_is_made_again(runs: Path) -> None:
    model = prepare_model(small_recipe(), runs, Console(quiet=True))
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    console = Console(record=True, width=300, quiet=False)
    assert prepare_model(small_recipe(), runs, console) == model
    assert "differs from what was written there, making it again" in console.export_text()
    assert weights.read_bytes() == whole


def test_out_of_memory_is_tried_once_more_with_half_the_micro_batch(caplog: pytest.LogCaptureFixture) -> None:
    def updated(fail: bool) -> str:
        policy = starting_policy()
        updater = Updater(policy, replace(SETTINGS, micro_batch_tokens=800), LossSpec(), 10, 0)
        sample = sample_of(policy)
        original, calls = updater._backward, [0]

        def backward(*args: Any, **kwargs: Any) -> None:
            calls[0] += 1
            if fail and calls[0] == 1:
                raise torch.OutOfMemoryError("out of memory")
            original(*args, **kwargs)

        updater._backward = backward  # type: ignore[method-assign]
        updater(sample, 0)
        assert updater.micro_batch_tokens == (400 if fail else 800)
        return policy.weights_hash() if not fail else ""

    updated(fail=False)
    with caplog.at_level(logging.WARNING):
        updated(fail=True)
    assert "once more with micro-batches of 400 tokens" in caplog.text


def test_non_finite_updates_may_be_left_out_up_to_a_limit() -> None:
    policy = tiny_policy()
    updater = Updater(policy, config.UpdateSettings(mini_batches=1, max_skipped_updates=1), LossSpec(), 10, 0)
    sample = sample_of(policy)
    broken = replace(sample, credit=Credit.of(sample.credit.advantage * float("nan")))
    before = policy.weights_hash()
    assert updater(broken, 0)["skipped_updates"] == 1
    assert policy.weights_hash() == before
    with pytest.raises(NumericalError):
        updater(broken, 1)


HEALTHY = {
    "informative_groups": 0.5,
    "entropy": 1.0,
    "credited_logprob": -1.0,
    "answered": 1.0,
    "valid_format": 1.0,
    "invalid_turns": 0.0,
    "failed": 0.0,
    "kl_to_old": 0.01,
}


@pytest.mark.parametrize(
    ("changes", "steps", "message"),
    [
        ({"answered": 0.4}, 1, "60% of the episodes end without an answer"),
        ({"invalid_turns": 0.7}, 1, "70% of the turns hold no valid action"),
        ({"valid_format": 0.0}, 1, "100% of the episodes are invalid in their format"),
        ({"failed": 0.3}, 1, "30% of the episodes failed"),
        ({"informative_groups": 0.0}, 5, "no group has taught anything for 5 steps"),
        ({"entropy": 0.04}, 1, "entropy is down to 4% of its highest value"),
        ({"kl_to_old": 0.6}, 1, "the policy moved 0.60 nats a token"),
        ({"credited_logprob": -2.5}, 1, "well-credited tokens became 1.5 nats less likely"),
    ],
)
def test_each_watchdog_barks_once_when_its_cause_comes(changes: dict[str, float], steps: int, message: str) -> None:
    watchdog = Watchdog()
    assert watchdog(HEALTHY) == []
    heard = [watchdog(HEALTHY | changes) for _ in range(steps)]
    assert [text for step in heard[:-1] for text in step] == []
    assert len(heard[-1]) == 1
    assert message in heard[-1][0]
    assert watchdog(HEALTHY | changes) == []  # once, until it is gone
    assert watchdog(HEALTHY) == []


@pytest.mark.parametrize(
    ("invalid", "collapses"),
    [
        ([0.1, 1.0, 1.0, 1.0, 1.0, 1.0], True),
        ([0.1, 1.0, 1.0, 1.0, 1.0], False),  # four steps are too few
        ([0.1, 1.0, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0], False),  # not in a row
        ([1.0] * 20, False),  # it never knew better
        ([0.6] + [0.995] * 9, False),
        ([0.49] + [0.995] * 5, True),
    ],
)
def test_a_policy_that_forgot_the_format_stops_the_run(invalid: list[float], collapses: bool) -> None:
    watchdog = Watchdog()
    for share in invalid[:-1]:
        watchdog(HEALTHY | {"invalid_turns": share})
    if collapses:
        with pytest.raises(
            NumericalError, match=r"for 5 steps .* the policy has collapsed; lower update.learning_rate"
        ):
            watchdog(HEALTHY | {"invalid_turns": invalid[-1]})
    else:
        watchdog(HEALTHY | {"invalid_turns": invalid[-1]})


def test_engine_with_other_weights_stops_the_run_and_leaves_the_batch(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that goes on with the weights of the step before, as a forgotten sync or a stale prefix cache would."""
    model = prepare_model(small_recipe(), runs, Console(quiet=True))
    original = TransformersEngine.load_weights

    def forgetful(self: TransformersEngine, policy: Any, version: int) -> None:
        if version == 1:
            stale = type(policy)(copy.deepcopy(policy.model), policy.tokenizer)
            with torch.no_grad():
                for weight in stale.model.parameters():
                    weight.mul_(0.9)
            policy = stale
        original(self, policy, version)

    monkeypatch.setattr(TransformersEngine, "load_weights", forgetful)
    folder = runs / "kill" / "run"
    with pytest.raises(
        NumericalError,
        match=r"engine: its log-probabilities differ .*; step 1, its episodes: .*broken-step-000001.jsonl",
    ):
        train(small_recipe(), folder, model, nothing)
    assert len(read_episodes(folder / "episodes" / "broken-step-000001.jsonl")) == 12


def test_mismatched_log_probabilities_are_never_left_out() -> None:
    policy = tiny_policy()
    updater = Updater(policy, config.UpdateSettings(mini_batches=1, max_skipped_updates=5), LossSpec(), 10, 0)
    sample = sample_of(policy)
    with pytest.raises(NumericalError, match="before the first optimiser step"):
        updater(replace(sample, old_logprobs=sample.old_logprobs + 0.01), 0)
    assert updater.skipped == 0
