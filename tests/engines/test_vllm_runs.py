"""Rollouts and training runs on the vLLM engine; run by `make test-vllm`."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from a2tgpo.config import ModelSettings, Recipe, TrainingSettings, VLLMSettings, load_recipe
from a2tgpo.engines.vllm import VLLMEngine
from a2tgpo.episode import ActionKind, StopReason
from a2tgpo.errors import EngineError
from a2tgpo.information_gain import score_episodes
from a2tgpo.policy.chat import Chat
from a2tgpo.run_folder.checkpoint import checkpoints, load_checkpoint
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.start.prepare import prepare_model
from a2tgpo.training.loop import train
from a2tgpo.training.rollout import Rollout, Task
from a2tgpo.training.sampler_gap import check_sampler, mismatch_metrics
from tests.support.recipes import small_recipe
from tests.support.small_world import small_env
from tests.support.vllm_engine import needs_vllm, running, wide_policy

pytestmark = needs_vllm
ENGINES = {
    "transformers": ModelSettings(options={"heads": 2.0}),
    "vllm": ModelSettings(engine="vllm", options={"heads": 2.0}),
}


def rollout_on(engine: VLLMEngine, num_envs: int, max_episode_tokens: int = 120) -> Rollout:
    return Rollout(
        small_env(num_envs),
        engine,
        Chat(engine._policy.tokenizer),
        max_action_tokens=6,
        max_episode_tokens=max_episode_tokens,
    )


def test_two_hundred_episodes_at_once() -> None:
    policy = wide_policy()
    tasks = [Task(group, f"q{group % 10}", 10 * group + place) for group in range(40) for place in range(5)]
    with running(policy) as engine:
        together = rollout_on(engine, 200)(tasks)
        in_fours = rollout_on(engine, 4)(tasks[:20])
    assert [(episode.group, episode.seed) for episode in together] == [(task.group, task.seed) for task in tasks]
    assert {episode.stop for episode in together} >= {StopReason.MAX_TURNS, StopReason.ANSWERED}
    assert len({turn.action for episode in together for turn in episode.turns}) == len(ActionKind)
    for one, other in zip(together, in_fours, strict=False):
        assert (one.token_ids, one.turn_index, one.stop) == (other.token_ids, other.turn_index, other.stop)
    measured = score_episodes(policy, together)
    check_sampler(measured.tokens, measured.logprobs, torch.float32, 1.0)
    assert mismatch_metrics(measured.tokens, measured.logprobs, None)["sampler_mismatch_max"] < 5e-5


def test_finished_episodes_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With actions of different lengths, some episodes are in their last turn while others are in their first."""
    turns: dict[int, int] = {}
    spread: list[int] = []
    submit = VLLMEngine.submit

    def counted(self: VLLMEngine, key: int, *args: Any) -> None:
        turns[key] = turns.get(key, 0) + 1
        spread.append(max(turns.values()) - min(turns.values()))
        submit(self, key, *args)

    monkeypatch.setattr(VLLMEngine, "submit", counted)
    with running(wide_policy()) as engine:
        rollout_on(engine, 60)([Task(0, f"q{place % 10}", place) for place in range(60)])
    assert max(spread) >= 2


def test_an_episode_that_would_overflow_is_cut_with_its_reason() -> None:
    with running(wide_policy(), max_tokens=24) as engine:
        episodes = rollout_on(engine, 8, max_episode_tokens=24)(
            [Task(0, f"q{place % 10}", place) for place in range(40)]
        )
    cut = [episode for episode in episodes if episode.stop is StopReason.MAX_TOKENS]
    assert 5 < len(cut) < 40
    assert all(episode.num_tokens <= 24 for episode in episodes)


def run_of(recipe: Recipe, runs: Path, name: str, kind: str = "train") -> list[dict[str, Any]]:
    model = prepare_model(recipe, runs, Console(quiet=True))
    folder = runs / name
    folder.mkdir(parents=True, exist_ok=True)
    assert train(recipe, folder, model, lambda _kind, _step, _values: None)
    return read_metrics(folder, kind)


def test_a_crash_is_explained_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM breaks in the middle of a step; the run ends as one that nobody disturbed."""
    recipe = dataclasses.replace(small_recipe(), model=ENGINES["vllm"], vllm=VLLMSettings(kv_cache_gib=0.25))
    expected = run_of(recipe, tmp_path, "undisturbed")
    submit, seen = VLLMEngine.submit, [0]

    def breaking(self: VLLMEngine, *args: Any) -> None:
        submit(self, *args)
        seen[0] += 1
        if seen[0] == 220:  # 72 turns of the first evaluation, about 36 per step
            monkeypatch.setattr(type(self._llm.llm_engine.engine_core), "get_output", broken)

    def broken(self: Any) -> None:
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(VLLMEngine, "submit", breaking)
        with pytest.raises(
            EngineError,
            match=(
                r"engine: vLLM broke while generating \(RuntimeError: device lost\); a2tgpo train --resume FOLDER"
                r" goes on"
            ),
        ):
            run_of(recipe, tmp_path, "broken")
    monkeypatch.undo()
    saved = checkpoints(tmp_path / "broken" / "checkpoints")
    assert load_checkpoint(saved[-1]).step in range(1, 5)
    got = run_of(recipe, tmp_path, "broken")
    assert [row["step"] for row in got] == [row["step"] for row in expected]
    for one, other in zip(got, expected, strict=True):
        assert one["em"] == other["em"]
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)


def test_it_learns_like_the_transformers_engine(tmp_path: Path) -> None:
    """Same recipe, warm start and seeds. Sampled EM over 2 seeds × 200 questions has a standard error of 0.025, plus
    the runs' own spread.
    """
    base, scores = load_recipe("quickstart"), {}
    for engine, model in ENGINES.items():
        training = TrainingSettings(steps=40, evaluate_every=40, checkpoint_every=40)
        recipe = dataclasses.replace(
            base, algorithm="grpo", model=model, training=training, vllm=VLLMSettings(kv_cache_gib=0.25)
        )
        runs = [
            run_of(dataclasses.replace(recipe, seed=seed), tmp_path, f"{engine}-{seed}", "evaluation")
            for seed in (0, 1)
        ]
        scores[engine] = np.array([[row["em_sampled"] for row in run] for run in runs]).mean(axis=0)
        print(f"{engine}: sampled EM {scores[engine][0]:.3f} before and {scores[engine][1]:.3f} after 40 steps")
        assert scores[engine][1] > scores[engine][0] + 0.08
    assert np.abs(scores["vllm"] - scores["transformers"]).max() < 0.1
