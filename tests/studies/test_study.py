"""Studies: side by side, continued, summed up."""

import csv
import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from a2tgpo.algorithms.loader import make_algorithm
from a2tgpo.config import (
    EnvironmentSettings,
    Recipe,
    RolloutSettings,
    StudySettings,
    TrainingSettings,
    UpdateSettings,
    WarmStartSettings,
    from_dict,
    to_toml,
)
from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.lock import claim
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.studies.contenders import ABLATIONS, contenders_of
from a2tgpo.studies.progress import progress
from a2tgpo.studies.runner import compare, train_job
from a2tgpo.studies.study import final_intervals, jobs_of


def small_study() -> Recipe:
    return Recipe(
        name="small",
        environment=EnvironmentSettings(worlds=2, max_turns=3, max_searches=2),
        warm_start=WarmStartSettings(
            target_success=0.0, max_steps=60, evaluate_every=60, evaluate_questions=8, demonstrations=300
        ),
        rollout=RolloutSettings(questions=4, group_size=3, max_action_tokens=6, max_episode_tokens=200),
        update=UpdateSettings(mini_batches=2),
        training=TrainingSettings(steps=2, evaluate_every=1, evaluate_questions=8),
        # a commit while the tests run is no failure
        study=StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1), workers=2, allow=("git_commit",)),
    )


def test_study_runs_side_by_side_sums_up_and_is_continued(tmp_path: Path) -> None:
    console = Console(record=True, width=140)
    jobs = compare(small_study(), tmp_path, console)
    folder = tmp_path / "small"
    assert [job.name for job in jobs] == ["a2tgpo-s0", "grpo-s0", "a2tgpo-s1", "grpo-s1"]
    assert all(job.finished for job in jobs)
    first = [
        read_metrics(folder / name, "evaluation")[0]["em"] for name in ("a2tgpo-s0", "grpo-s0", "a2tgpo-s1", "grpo-s1")
    ]
    assert len(set(first)) == 1  # one shared start, scored on the same questions
    rows = list(csv.DictReader((folder / "summary.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["seed"]) for row in rows] == [
        ("a2tgpo", "0"),
        ("grpo", "0"),
        ("a2tgpo", "1"),
        ("grpo", "1"),
    ]
    summary = json.loads((folder / "summary.json").read_text())["algorithms"]
    em = [float(row["em"]) for row in rows if row["algorithm"] == "grpo"]
    assert summary["grpo"]["em"]["mean"] == pytest.approx(sum(em) / 2)
    assert (folder / "summary.md").read_text().startswith("| algorithm | seeds |")
    assert (folder / "learning-curves.png").read_bytes()[:4] == b"\x89PNG"
    printed = console.export_text()
    assert "study small" in printed
    assert "a2tgpo − grpo: " in printed
    assert "detectable with 80 % power" in printed
    assert json.loads((folder / "statistics.json").read_text())["comparisons"][0]["baseline"] == "grpo"

    longer = replace(
        small_study(), study=replace(small_study().study, algorithms=("a2tgpo", "grpo", "igpo"), seeds=(0,))
    )
    again = Console(record=True, width=140)
    before = (folder / "grpo-s0" / "metrics.jsonl").read_text()
    compare(longer, tmp_path, again)
    text = again.export_text()
    assert "warm start: cached" in text
    assert "2 of 3 runs are already finished" in text
    assert (folder / "grpo-s0" / "metrics.jsonl").read_text() == before
    assert set(final_intervals(jobs_of(longer, folder))) == {"a2tgpo", "grpo", "igpo"}


def test_contenders_variants_and_ablations() -> None:
    study = StudySettings(
        algorithms=("a2tgpo", "grpo"),
        seeds=(0,),
        variants={
            "wide.algorithm": "a2tgpo",
            "wide.algorithm_options.clip_modulation": 0.9,
            "fast.update.learning_rate": 0.01,
            "fast.algorithm": "grpo",
        },
        ablate=("a2tgpo",),
    )
    found = {contender.label: contender for contender in contenders_of(Recipe(study=study))}
    assert list(found)[:4] == ["a2tgpo", "grpo", "wide", "fast"]
    assert found["wide"].recipe.algorithm_options == {"clip_modulation": 0.9}
    assert found["fast"].recipe.update.learning_rate == 0.01
    assert {name for name, contender in found.items() if contender.baseline == "a2tgpo"} == {
        f"a2tgpo-{what}" for what in ABLATIONS["a2tgpo"]
    }
    for contender in found.values():
        make_algorithm(contender.recipe.algorithm, contender.recipe.algorithm_options)
    assert from_dict(Recipe, tomllib.loads(to_toml(Recipe(study=study)))).study == study


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (StudySettings(baseline="rloo"), "study.baseline: got 'rloo'"),
        (StudySettings(ablate=("grpo",)), "study.ablate: got 'grpo', expected one of a2tgpo"),
        (StudySettings(algorithms=("grpo", "grpo")), "the label 'grpo' twice"),
        (StudySettings(variants={"a/b.algorithm": "grpo"}), "the label 'a/b'"),
        (
            StudySettings(variants={"x.update.learning_rat": 1.0}),
            r"study\.variants\.x\.update\.learning_rat: unknown setting",
        ),
        (StudySettings(variants={"x": 1}), "expected a table"),
    ],
)
def test_studies_that_cannot_be_run(study: StudySettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        contenders_of(Recipe(study=study))


def test_a_crashing_run_is_written_down_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = jobs_of(small_study(), tmp_path)[0]

    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("a2tgpo.training.loop.train", broken)
    train_job(job, tmp_path)
    assert job.problem == "crashed: RuntimeError: the disk is full"
    monkeypatch.setattr("a2tgpo.training.loop.train", lambda *_args, **_kwargs: None)
    train_job(job, tmp_path)
    assert job.problem == "not started"


def test_finished_wins_over_crashed(tmp_path: Path) -> None:
    job = jobs_of(small_study(), tmp_path)[0]
    job.folder.mkdir()
    (job.folder / "crashed").write_text("its process was ended by signal SIGKILL")
    (job.folder / "metrics.jsonl").write_text('{"kind": "evaluation", "step": 2, "em": 0.5}\n')
    (job.folder / "config.toml").write_text(to_toml(job.recipe))
    assert job.problem == "crashed: its process was ended by signal SIGKILL"
    (job.folder / "finished").touch()
    assert job.problem == ""
    (job.folder / "crashed").unlink()
    (job.folder / "config.toml").unlink()
    assert job.problem == "finished, but its config.toml is missing, damaged, or of a shorter run"


def test_a_run_waits_for_a_worker_that_is_still_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, trained = jobs_of(small_study(), tmp_path)[0], []
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from a2tgpo.run_folder.lock import claim\n"
            f"with claim(Path({str(job.folder)!r})): print('held', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"

    def ended(_seconds: float) -> None:
        holder.communicate()

    monkeypatch.setattr("a2tgpo.studies.runner.time.sleep", ended)
    monkeypatch.setattr("a2tgpo.training.loop.train", lambda *_args, **_kwargs: trained.append(job.name))
    train_job(job, tmp_path)
    assert trained == [job.name]
    assert job.problem == "not started"


def test_two_studies_do_not_share_a_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "small"), pytest.raises(ConfigError, match="small is in use by another process"):
        compare(small_study(), tmp_path, Console(quiet=True))


def test_one_line_per_evaluation_where_there_is_no_terminal(tmp_path: Path) -> None:
    jobs = jobs_of(small_study(), tmp_path)[:2]
    for job in jobs:
        job.folder.mkdir()
    train, evaluation = '{"kind": "train", "step": %d, "em": 0.25}\n', '{"kind": "evaluation", "step": %d, "em": 0.5}\n'
    before = jobs[0].folder / "metrics.jsonl"
    before.write_text(evaluation % 0)
    text = StringIO()
    with progress(jobs, Console(file=text)) as tick:
        tick()
        assert text.getvalue() == ""  # what was there before is no news
        before.write_text(evaluation % 0 + train % 1 + evaluation % 1)
        tick()
        tick()
        before.write_text(evaluation % 0 + train % 1 + evaluation % 1 + train % 2)
        (jobs[1].folder / "metrics.jsonl").write_text("damaged\nby something\n")
        tick()
        before.write_text(evaluation % 0 + train % 1 + evaluation % 1 + train % 2 + evaluation % 2)
    assert text.getvalue().split("\n") == [
        "a2tgpo-s0: step 1 of 2, held-out EM 0.50 train 0.25",
        "a2tgpo-s0: step 2 of 2, held-out EM 0.50 train 0.25",
        "",
    ]
