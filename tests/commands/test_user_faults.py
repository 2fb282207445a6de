"""What a user got wrong once, with what is right: one paragraph and exit code 2, nothing half-written, and never
another run's numbers.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import a2tgpo.engines.vllm.start
from a2tgpo.cli import main
from a2tgpo.config import (
    EnvironmentSettings,
    Recipe,
    RolloutSettings,
    StudySettings,
    TrainingSettings,
    UpdateSettings,
    WarmStartSettings,
    to_toml,
)
from a2tgpo.display.lines import printable
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy
from a2tgpo.run_folder.episodes import read_episodes
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.run_folder.resume import check_same_recipe
from a2tgpo.studies.contenders import contenders_of
from a2tgpo.studies.runner import compare
from a2tgpo.studies.study import jobs_of
from tests.support.command_line import error_of
from tests.support.tiny_models import tiny_policy


def small() -> Recipe:
    return Recipe(
        name="small",
        environment=EnvironmentSettings(worlds=2, max_turns=2, max_searches=1),
        warm_start=WarmStartSettings(
            target_success=0.0, max_steps=2, evaluate_every=2, evaluate_questions=4, demonstrations=50
        ),
        rollout=RolloutSettings(questions=2, group_size=2, max_action_tokens=4, max_episode_tokens=160),
        update=UpdateSettings(mini_batches=1),
        training=TrainingSettings(steps=1, evaluate_every=1, evaluate_questions=4),
    )


def trained(recipe: Recipe, folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(recipe))
    (folder / "finished").write_text("")
    return folder


def test_a_run_of_another_recipe_is_not_passed_off_as_this_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = trained(small(), tmp_path / "small" / "a2tgpo-s0")
    # nothing that is learnt
    check_same_recipe(
        replace(small(), update=UpdateSettings(mini_batches=1, micro_batch_tokens=99), study=StudySettings(seeds=(7,))),
        folder,
    )
    with pytest.raises(
        ConfigError, match=r"was trained with training\.evaluate_every 1 \(now 5\), expected the same settings"
    ):
        check_same_recipe(replace(small(), training=replace(small().training, evaluate_every=5)), folder)
    (tmp_path / "small.toml").write_text(to_toml(small()))
    words = ("train", str(tmp_path / "small.toml"), "--runs", str(tmp_path), "--update.learning-rate", "0.5")
    assert "update.learning_rate 0.0004 (now 0.5)" in error_of(capsys, *words)
    with pytest.raises(ConfigError, match=r"rollout\.group_size 2 \(now 3\)"):
        compare(replace(small(), rollout=replace(small().rollout, group_size=3)), tmp_path, Console(quiet=True))
    assert not (tmp_path / "small" / "study.toml").exists()


def test_resume_goes_on_in_the_folder_that_it_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Also where the folder is called after a variant, or was renamed."""
    (tmp_path / "small.toml").write_text(to_toml(small()))
    assert main(["train", str(tmp_path / "small.toml"), "--runs", str(tmp_path / "runs")]) == 0
    first = tmp_path / "runs" / "small" / "a2tgpo-s0"
    moved = tmp_path / "runs" / "renamed [bold]" / "wide-s0"
    moved.parent.mkdir()
    first.rename(moved)
    (moved / "finished").unlink()
    shutil.rmtree(moved / "model")
    capsys.readouterr()
    assert main(["train", "--resume", str(moved)]) == 0
    assert f"finished: {moved}" in capsys.readouterr().out  # brackets are no markup
    assert (moved / "model" / "model.safetensors").is_file()
    assert not first.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--training.checkpoint-every", "0"), "training.checkpoint_every: got 0, expected at least 1"),
        (("--training.log-episodes-every", "0"), "training.log_episodes_every: got 0"),
        (("--training.evaluate-questions", "0"), "training.evaluate_questions: got 0"),
        (("--model.threads", "0"), "model.threads: got 0"),
        (("--warm-start.batch-size", "0"), "warm_start.batch_size: got 0"),
        (("--rollout.temperature", "0"), "rollout.temperature: got 0.0, expected a positive number"),
        (("--rollout.temperature", "-1"), "rollout.temperature: got -1.0"),
        (("--update.learning-rate", "nan"), "update.learning_rate: got nan"),
        (("--update.max-grad-norm", "-1"), "update.max_grad_norm: got -1.0"),
        (("--seed", "-1"), "seed: got -1, expected at least 0"),
        (("--name", ""), "name: got '', expected a folder's name"),
        (("--name", "../elsewhere"), "name: got '../elsewhere'"),
        (("--name", ".cache"), "name: got '.cache'"),
    ],
)
def test_settings_out_of_range(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert message in error_of(capsys, "train", "quickstart", "--dry-run", *words)


def test_the_algorithm_is_checked_before_the_warm_start(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "algorithm: got 'nope'" in error_of(
        capsys, "train", "quickstart", "--algorithm", "nope", "--runs", str(tmp_path / "runs")
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (StudySettings(seeds=()), r"study\.seeds: got \[\], expected at least one seed"),
        (StudySettings(seeds=(1, 1)), r"study\.seeds: got \[1, 1\]"),
        (StudySettings(algorithms=()), r"study\.algorithms: got none"),
    ],
)
def test_studies_of_nothing(study: StudySettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        contenders_of(Recipe(study=study))


@pytest.mark.parametrize("command", ["train", "compare"])
def test_the_engine_is_looked_for_before_the_warm_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(a2tgpo.engines.vllm.start, "_installed", lambda name: False)
    message = error_of(capsys, command, "quickstart", "--runs", str(tmp_path), "--model.engine", "vllm")
    assert "model.engine: got 'vllm', but vLLM is not installed; run `pip install 'a2tgpo[vllm]'`" in message
    assert list(tmp_path.iterdir()) == []


def test_files_in_the_place_of_folders_and_the_other_way_round(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "q", "answer": "a", "context": [["t", ["s"]]]}\n')
    assert "which is a file; expected a folder" in error_of(capsys, "data", "corpus", str(questions), "-o", str(file))
    assert "which is a file; expected a folder" in error_of(capsys, "data", "index", str(questions), "-o", str(file))
    assert "missing: no such file; check the path" in error_of(capsys, "data", "inspect", str(tmp_path / "missing"))
    assert "which is a file; expected a folder" in error_of(
        capsys, "evaluate", "--agent", "oracle", "--output", str(file)
    )
    folder = trained(small(), tmp_path / "run")
    assert error_of(capsys, "view", str(folder), "-o", str(file / "page.html"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "questions.jsonl", "run"]


def test_play_whose_input_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_prompt: str = "") -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert "input: it ended before the episode did" in error_of(capsys, "play")


def test_models_that_cannot_be_loaded(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path)
    weights = tmp_path / "model.safetensors"
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device: got 'cuda', but this machine shows torch 0 CUDA devices"):
            Policy.load(tmp_path, device="cuda")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read"):
        Policy.load(tmp_path)


def test_damaged_metrics_and_episodes_are_named(tmp_path: Path) -> None:
    folder = trained(small(), tmp_path / "small" / "a2tgpo-s0")
    row = '{"kind": "evaluation", "step": 1, "em": 0.5}\n'
    (folder / "metrics.jsonl").write_text(row + row[:-20])  # cut off while it was written
    assert [line["em"] for line in read_metrics(folder)] == [0.5]
    (folder / "metrics.jsonl").write_text(row + "not json\n" + row)
    with pytest.raises(ValueError, match=r"line 2 of .*metrics\.jsonl is no metrics line"):
        read_metrics(folder)
    assert jobs_of(small(), tmp_path / "small")[0].problem.startswith("damaged: metrics: line 2 of ")
    with pytest.raises(ValueError, match=r"line 1 of .*metrics\.jsonl is no recorded episode"):
        read_episodes(folder / "metrics.jsonl")


@pytest.mark.parametrize("words", [("--environment.worlds", "1"), ("--environment.no-fictional",)])
def test_worlds_whose_names_the_tiny_model_does_not_know(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    message = error_of(capsys, "train", "quickstart", "--runs", str(tmp_path), *words)
    assert (
        "whose vocabulary holds the names of drawn worlds only; expected at least 2 worlds and fictional true"
        in message
    )


def left(group: int) -> list[str]:
    """Command lines of a process group's living members."""
    rows = [
        line.split(None, 2)
        for line in subprocess.run(
            ["ps", "-eo", "pgid,stat,args"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]
    return [args for number, state, args in rows if number == str(group) and not state.startswith("Z")]


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_study_that_is_told_to_stop_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    recipe = replace(
        small(),
        training=replace(small().training, steps=5000, evaluate_every=5000),
        study=StudySettings(algorithms=("grpo",), seeds=(0, 1)),
    )
    (tmp_path / "small.toml").write_text(to_toml(recipe))
    words = [sys.executable, "-c", "import sys; from a2tgpo.cli import main; sys.exit(main())", "compare", "small.toml"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as study:
        metrics = tmp_path / "runs" / "small" / "grpo-s0" / "metrics.jsonl"
        while not (metrics.is_file() and '"train"' in metrics.read_text()):
            assert study.poll() is None
            time.sleep(0.1)
        if number == signal.SIGINT:
            os.killpg(study.pid, number)  # as a terminal does it
        else:
            study.send_signal(number)
        printed, _ = study.communicate(timeout=60)
    assert study.returncode == code, printed
    assert "Traceback" not in printed
    assert (
        printed.rstrip("\n").split("\n")[-1] == "stopped: 0 of 2 runs are finished; the same command resumes the study"
    )
    assert any((tmp_path / "runs" / "small" / "grpo-s0" / "checkpoints").glob("step-*"))
    # what multiprocessing keeps beside its workers needs a moment to see that they are gone
    end = time.monotonic() + 20
    while left(study.pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert left(study.pid) == []


def test_a_damaged_checkpoint_and_an_unfinished_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(to_toml(small()))
    assert main(["train", str(tmp_path / "small.toml"), "--runs", str(tmp_path / "runs")]) == 0
    run = tmp_path / "runs" / "small" / "a2tgpo-s0"
    (run / "finished").unlink()
    shutil.rmtree(run / "model")
    assert main(["play", str(run)]) == 0  # its newest checkpoint
    assert "got 7 for" in error_of(capsys, "evaluate", str(run), "--checkpoint", "7")
    (run / "checkpoints" / "step-000001" / "model.safetensors").write_bytes(b"x")
    for words in (("train", "--resume", str(run)), ("evaluate", str(run)), ("play", str(run))):
        assert "model.safetensors is missing or differs" in error_of(capsys, *words)
    shutil.rmtree(run / "checkpoints")
    assert "steps that it keeps: none yet; continue the run with" in error_of(capsys, "play", str(run))


def test_escape_codes_do_not_reach_the_terminal() -> None:
    assert (
        printable("\x1b]0;title\x07\x1b[31mred\x1b[0m\n[bold] naïve 東京\tx")
        == "\ufffd]0;title\ufffd\ufffd[31mred\ufffd[0m\n[bold] naïve 東京\tx"
    )
