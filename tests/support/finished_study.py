"""Studies and runs on disk as training would have left them, with scores and texts of the test's choice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from a2tgpo.config import Recipe, StudySettings, TrainingSettings, to_toml
from a2tgpo.studies.study import Job, jobs_of

EVIL = "<script>window.hacked = 1</script></answer> <img src=x onerror='window.hacked=1'> & </information>"
EVIL += " \u2028 \u2029 \x85 \x0b \x1c \r"  # which str.splitlines takes for ends of lines
Skill = Callable[[str, int], float]
"""(label, seed) → probability of a right answer."""


def finished_study(
    root: Path,
    study: StudySettings,
    *,
    questions: int = 40,
    skill: Skill = lambda _label, _seed: 0.5,
    episodes: int = 0,
) -> Path:
    """A study whose runs are all finished, its scores drawn with the given probabilities."""
    recipe = Recipe(name="made", training=TrainingSettings(steps=10), study=study)
    folder = root / "made"
    folder.mkdir()
    (folder / "study.toml").write_text(to_toml(recipe))
    for job in jobs_of(recipe, folder):
        write_run(job, questions, skill(job.label, job.recipe.seed), episodes)
    return folder


def write_run(job: Job, questions: int, skill: float, episodes: int) -> None:
    rng = np.random.default_rng([job.recipe.seed, *job.label.encode()])
    for name in ("evaluations", "episodes"):
        (job.folder / name).mkdir(parents=True)
    (job.folder / "config.toml").write_text(to_toml(replace(job.recipe, study=StudySettings())))
    manifest = {
        "algorithm": job.recipe.algorithm,
        "seed": job.recipe.seed,
        "settings": {"environment": {"top_k": 3}},
        "git_commit": "abc",
    }
    (job.folder / "manifest.json").write_text(json.dumps(manifest))
    lines = []
    for step in (0, 5, 10):
        right = rng.random(questions) < skill
        rows = [
            {
                "question_id": f"q{i}",
                "question": f"Who is number {i}? {EVIL}",
                "gold_answers": ["right"],
                "hops": 1 + i % 2,
                "answer": "right" if hit else "wrong",
                "em": float(hit),
                "f1": float(hit),
                "searches": 1.0 + i % 3,
            }
            for i, hit in enumerate(right)
        ]
        (job.folder / "evaluations" / f"step-{step:06d}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        scores = {"em": right.mean(), "f1": right.mean(), "searches": 2.0, "gain_per_turn": 1.0}
        scores |= {"em_1_hops": right[::2].mean(), "em_2_hops": right[1::2].mean()}
        scores |= {"em_sampled": right.mean() / 2, "em_train": right.mean()} if step != 5 else {}
        lines.append({"kind": "evaluation", "step": step, **scores, "seconds_evaluation": 1.0})
        train = {"em": 0.5, "gain_turn_0": 2.0, "gain_turn_1": 1.0, "clip_scale_min": 0.9, "clip_scale_max": 1.1}
        train |= {"entropy": 0.5, "clip_fraction": 0.1, "kl_to_old": 1e-3, "loss_kl": 0.0, "invalid_turns": 0.0}
        train |= {"sampler_mismatch": 1e-7} | ({"gain_turn_2": -30.0} if step == 5 else {})
        lines.append(
            {
                "kind": "train",
                "step": max(1, step),
                **train,
                "seconds_rollout": 2.0,
                "seconds_gain": 0.2,
                "seconds_update": 1.0,
            }
        )
    (job.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if episodes:
        rows = [episode(index // 4, index) for index in range(episodes)]
        (job.folder / "episodes" / "step-000010.jsonl").write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    (job.folder / "finished").write_text("")


def episode(group: int, index: int) -> dict[str, Any]:
    """Two turns, a search and an answer; right every other time; every third is truncated; the passage tries to break
    out of the page.
    """
    right, truncated = index % 2 == 0, index % 3 == 2
    search = turn(
        "search",
        f"Question {group}: who is it?",
        ["<search>", "who", f"{index}", "</search>"],
        2.5 if index % 4 == 0 else 0.3,
        -4.0,
    )
    answer = turn(
        "answer",
        f"<information> {EVIL} </information>",
        ["<answer>", "right" if right else "wrong", "</answer>"],
        None,
        None,
    )
    return {
        "group": group,
        "question_id": f"q{group}",
        "seed": index,
        "turns": [search, answer],
        "outcome": float(right),
        "stop": "max_turns" if truncated else "answered",
        "closing_ids": [],
        "closing_text": "",
        "gold_answers": ["right"],
        "info": {"em": float(right), "f1": float(right), "answer": "right" if right else "wrong", "searches": 1},
    }


def turn(action: str, context: str, tokens: list[str], gain: float | None, before: float | None) -> dict[str, Any]:
    return {
        "context_ids": [1],
        "action_ids": list(range(2, 2 + len(tokens))),
        "action_logprobs": [-0.1] * len(tokens),
        "action": action,
        "reward": 0.0,
        "information_gain": gain,
        "state_key": "",
        "info": {"query": "who" if action == "search" else "", "passage_ids": ["p1"], "answer": "", "complete": True},
        "context_text": context,
        "action_texts": tokens,
        "advantage": 0.8 if gain else -0.5,
        "clip_scale": 1.1 if gain else 1.0,
        "weight": 1.0,
        "value_before": before,
        "value_after": None if before is None or gain is None else before + gain,
    }
