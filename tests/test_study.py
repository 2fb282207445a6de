"""Studies: side by side, continued, summed up."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from a2tgpo.compare import compare
from a2tgpo.config import Environment, Recipe, Rollout, Study, Training, Update, WarmStart
from a2tgpo.runlog import read_metrics
from a2tgpo.study import Interval, jobs_of, table


def small_study() -> Recipe:
    return Recipe(
        name="small",
        environment=Environment(worlds=2, max_turns=3, max_searches=2),
        warm_start=WarmStart(target_success=0.0, max_steps=60, evaluate_every=60, evaluate_questions=8, demonstrations=300),
        rollout=Rollout(questions=4, group_size=3, max_action_tokens=6, max_episode_tokens=200),
        update=Update(mini_batches=2),
        training=Training(steps=2, evaluate_every=1, evaluate_questions=8),
        study=Study(algorithms=("a2tgpo", "grpo"), seeds=(0, 1), workers=2),
    )


def test_interval_is_student_t() -> None:
    # mean 2, sample deviation 1, n = 3: half width t(0.975, 2)·1/√3 = 4.30265/1.73205 = 2.48414
    interval = Interval.of([1.0, 2.0, 3.0])
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.high - interval.mean == pytest.approx(2.48414, abs=1e-5)
    one = Interval.of([1.5, math.nan])
    assert (one.mean, one.count) == (1.5, 1)
    assert math.isnan(one.low)
    assert str(one) == "1.500"


def test_study_runs_side_by_side_sums_up_and_is_continued(tmp_path: Path) -> None:
    console = Console(record=True, width=140)
    jobs = compare(small_study(), tmp_path, console)
    folder = tmp_path / "small"
    assert [job.name for job in jobs] == ["a2tgpo-s0", "grpo-s0", "a2tgpo-s1", "grpo-s1"]
    assert all(job.finished for job in jobs)
    first = [read_metrics(folder / name, "evaluation")[0]["em"] for name in ("a2tgpo-s0", "grpo-s0", "a2tgpo-s1", "grpo-s1")]
    assert len(set(first)) == 1  # one shared start, scored on the same questions
    rows = list(csv.DictReader((folder / "summary.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["seed"]) for row in rows] == [("a2tgpo", "0"), ("grpo", "0"), ("a2tgpo", "1"), ("grpo", "1")]
    summary = json.loads((folder / "summary.json").read_text())["algorithms"]
    em = [float(row["em"]) for row in rows if row["algorithm"] == "grpo"]
    assert summary["grpo"]["em"]["mean"] == pytest.approx(sum(em) / 2)
    assert (folder / "summary.md").read_text().startswith("| algorithm | seeds |")
    assert (folder / "learning-curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "study small" in console.export_text()

    longer = replace(small_study(), study=replace(small_study().study, algorithms=("a2tgpo", "grpo", "igpo"), seeds=(0,)))
    again = Console(record=True, width=140)
    before = (folder / "grpo-s0" / "metrics.jsonl").read_text()
    compare(longer, tmp_path, again)
    text = again.export_text()
    assert "warm start: cached" in text
    assert "2 of 3 runs are already finished" in text
    assert (folder / "grpo-s0" / "metrics.jsonl").read_text() == before
    assert set(table(jobs_of(longer, folder))) == {"a2tgpo", "grpo", "igpo"}
