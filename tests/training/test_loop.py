"""Whole runs on the embedded world, in seconds: what they leave, how they continue, that two of them are equal."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.config import (
    EnvironmentSettings,
    ModelSettings,
    Recipe,
    RolloutSettings,
    TrainingSettings,
    UpdateSettings,
    WarmStartSettings,
    load_recipe,
)
from a2tgpo.envs import PROTOCOLS
from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.episodes import read_episodes
from a2tgpo.run_folder.lock import claim
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.run_folder.metrics import METRICS, declared
from a2tgpo.start.tiny import tiny_policy
from a2tgpo.start.warm_start import warm_start
from a2tgpo.training.loop import train


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learned how actions are written, and little else."""
    folder = tmp_path_factory.mktemp("model")
    policy = tiny_policy(PROTOCOLS["tags_brief"].tags, seed=0)
    settings = WarmStartSettings(
        target_success=0.0,
        max_steps=100,
        evaluate_every=100,
        learning_rate=1e-2,
        evaluate_questions=8,
        demonstrations=400,
    )
    warm_start(policy, replace(recipe_for(Path("tiny")), warm_start=settings))
    policy.save(folder)
    return folder


def recipe_for(model: Path, algorithm: str = "a2tgpo", steps: int = 4) -> Recipe:
    return Recipe(
        name="test",
        algorithm=algorithm,
        environment=EnvironmentSettings(worlds=2, max_turns=3, max_searches=2),
        model=ModelSettings(source=str(model)),
        warm_start=WarmStartSettings(enabled=False),
        rollout=RolloutSettings(questions=4, group_size=3, max_action_tokens=6, max_episode_tokens=200),
        update=UpdateSettings(mini_batches=2, learning_rate=1e-3),
        training=TrainingSettings(
            steps=steps, evaluate_every=2, evaluate_questions=12, log_episodes_every=2, checkpoint_every=2
        ),
    )


def run(recipe: Recipe, folder: Path, model: Path) -> list[tuple[str, int]]:
    seen: list[tuple[str, int]] = []
    train(recipe, folder, model, lambda kind, step, values: seen.append((kind, step)))
    return seen


def comparable(folder: Path) -> list[dict[str, float]]:
    """Metrics without the clock."""
    return [
        {key: value for key, value in row.items() if not key.startswith(("seconds_", "probe_time")) and value == value}
        for row in read_metrics(folder)
    ]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_a_run_leaves_everything_in_its_folder(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "run"
    seen = run(recipe_for(model_folder), folder, model_folder)
    assert seen == [
        ("evaluation", 0),
        ("train", 1),
        ("train", 2),
        ("evaluation", 2),
        ("train", 3),
        ("train", 4),
        ("evaluation", 4),
    ]
    assert load_recipe(folder / "config.toml") == recipe_for(model_folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {
        "corpus_sha256",
        "questions_sha256",
        "model_sha256",
        "libraries",
        "git_commit",
        "decoding",
        "normalizer",
        "settings",
        "seed",
    } <= manifest.keys()
    rows = read_metrics(folder, "train")
    assert ["probe_time_share" in row for row in rows] == [False, True, False, True]  # where an evaluation is due
    added, seconds = (
        rows[-1]["probe_time_share"],
        [rows[-1][f"seconds_{part}"] for part in ("rollout", "gain", "update")],
    )
    assert rows[-1]["probe_time_share_step"] == pytest.approx(added / (1 + added) * seconds[1] / sum(seconds))
    assert {
        "em",
        "loss",
        "clip_fraction",
        "grad_norm",
        "entropy",
        "gain",
        "seconds_rollout",
        "seconds_gain",
        "seconds_update",
    } <= rows[-1].keys()
    logged = {name for row in read_metrics(folder) for name in row}
    declared_names = {metric.name for name in logged if (metric := declared(name))}
    assert declared_names == METRICS.keys()
    assert logged - {"kind", "step"} <= {name for name in logged if declared(name)}
    assert len((folder / "evaluations" / "step-000004.jsonl").read_text().splitlines()) == 12
    assert list((folder / "tensorboard").iterdir())
    episodes = read_episodes(folder / "episodes" / "step-000004.jsonl")
    assert len(episodes) == 12
    stored = json.loads((folder / "episodes" / "step-000004.jsonl").read_text().splitlines()[0])["turns"][0]
    assert {"advantage", "clip_scale", "context_text", "action_texts", "information_gain"} <= stored.keys()
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["step-000002", "step-000004"]


def test_finished_run_is_left_alone(tmp_path: Path, model_folder: Path) -> None:
    recipe = recipe_for(model_folder, steps=1)
    run(recipe, tmp_path, model_folder)
    assert run(recipe, tmp_path, model_folder) == []


@pytest.mark.parametrize("algorithm", ["a2tgpo", "igpo", "gigpo", "grpo", "dapo"])
def test_same_seed_same_run(tmp_path: Path, model_folder: Path, algorithm: str) -> None:
    recipe = recipe_for(model_folder, algorithm, steps=2)
    for name in ("one", "two"):
        run(recipe, tmp_path / name, model_folder)
    assert comparable(tmp_path / "one") == comparable(tmp_path / "two")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    run(replace(recipe, seed=1), tmp_path / "three", model_folder)
    assert comparable(tmp_path / "three") != comparable(tmp_path / "one")


def test_question_order_is_the_same_for_every_algorithm(tmp_path: Path, model_folder: Path) -> None:
    asked = []
    for algorithm in ("a2tgpo", "grpo"):
        run(recipe_for(model_folder, algorithm, steps=2), tmp_path / algorithm, model_folder)
        asked.append(
            [episode.question_id for episode in read_episodes(tmp_path / algorithm / "episodes" / "step-000002.jsonl")]
        )
    assert asked[0] == asked[1]


class StoppedError(Exception):
    pass


def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, model_folder: Path) -> None:
    recipe = recipe_for(model_folder)
    run(recipe, tmp_path / "whole", model_folder)

    def stop_at(kind: str, step: int, values: object) -> None:
        if (kind, step) == ("train", 3):
            raise StoppedError

    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "cut", model_folder, stop_at)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # a line that a kill interrupted
    assert run(recipe, tmp_path / "cut", model_folder) == [("train", 3), ("train", 4), ("evaluation", 4)]
    assert comparable(tmp_path / "cut") == comparable(tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_second_process_is_refused(tmp_path: Path, model_folder: Path) -> None:
    with claim(tmp_path), pytest.raises(ConfigError, match="in use by another process"):
        run(recipe_for(model_folder), tmp_path, model_folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path: Path, model_folder: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot write"):
        run(recipe_for(model_folder), tmp_path / "run", model_folder)


def test_file_in_place_of_the_folder(tmp_path: Path, model_folder: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="run folder: cannot write"):
        run(recipe_for(model_folder), tmp_path / "run", model_folder)


def test_no_gain_is_measured_when_nobody_wants_it(tmp_path: Path, model_folder: Path) -> None:
    recipe = recipe_for(model_folder, "grpo", steps=1)
    run(replace(recipe, information_gain=replace(recipe.information_gain, log=False)), tmp_path, model_folder)
    row = read_metrics(tmp_path, "train")[0]
    assert "gain" not in row
    assert row["probe_token_share"] == 0
