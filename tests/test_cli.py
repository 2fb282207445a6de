"""The command line as a user meets it: results, and one paragraph with exit code 2 for everything that cannot be
done.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import a2tgpo.cli
from a2tgpo.cli import main
from a2tgpo.errors import (
    A2TGPOError,
    CheckpointError,
    ConfigError,
    DataError,
    EngineError,
    MissingExtraError,
    NumericalError,
    RetrievalError,
    RolloutError,
    StorageError,
)
from tests.support.command_line import error_of
from tests.support.tiny_models import tiny_policy


def test_help_and_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "compare" in capsys.readouterr().out
    assert "got 'compar', expected one of compare" in error_of(capsys, "compar")
    assert error_of(capsys, "trainn").endswith("did you mean 'train'?")
    assert main(["--version"]) == 0


def test_help_imports_no_torch() -> None:
    code = "import sys; from a2tgpo.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare",), "recipe: got none, expected `a2tgpo compare RECIPE"),
        (("compare", "quickstrat"), "did you mean 'quickstart'?"),
        (("train", "quickstart", "--algorithm", "a2tpgo", "--dry-run"), "algorithm: got 'a2tpgo'"),
        (
            ("train", "quickstart", "--algorithm-options", "ig_wieght", "0.1", "--dry-run"),
            "unknown parameter 'ig_wieght'",
        ),
        (("train", "quickstart", "--rollout.group-size", "1"), "rollout.group_size: got 1, expected at least 2"),
        (("evaluate", "nowhere"), "model: got 'nowhere'"),
        (("play", "nowhere"), "run: got 'nowhere'"),
        (("bench", "rollout", "--episodes", "0"), "--episodes: got 0, expected at least 1"),
        (("bench", "update", "--sizes", "8", "0"), "--sizes[1]: got 0, expected at least 1"),
        (("bench", "credit", "--episodes"), "--episodes (number of values): got 0, expected at least 1"),
        (("bench", "env", "--passages", "2"), "--passages: got 2, expected at least 3; every search asks for three"),
        (("bench", "retrieval", "--queries", "-5"), "--queries: got -5, expected at least 1"),
        (("bench", "information-gain", "--searches", "-1"), "--searches: got -1, expected at least 0"),
        (("bench", "update", "--device", "tpu"), "device: got 'tpu', expected 'cpu', 'cuda'"),
        (("bench", "update", "--device", "meta"), "device: got 'meta', expected 'cpu', 'cuda'"),
        (("play", "--seed", "-1"), "--seed: got -1, expected at least 0"),
        (("evaluate", "--agent", "oracle", "--seed", "-1"), "--seed: got -1, expected at least 0"),
        (("evaluate", "--agent", "oracle", "--temperature", "nan"), "--temperature: got nan, expected at least 0"),
        (("evaluate", "--agent", "oracle", "--questions", "-1"), "--questions: got -1, expected at least 0"),
        (("baseline", "table", "--questions", "0"), "--questions: got 0, expected at least 1"),
        (("baseline", "sb3", "--seeds"), "--seeds (number of values): got 0, expected at least 1"),
        (("baseline", "sb3", "--seeds", "-1"), "--seeds[0]: got -1, expected at least 0"),
        (("baseline", "sb3", "--gain-weight", "nan"), "--gain-weight: got nan, expected at least 0"),
        (("false-calls", "--effect", "nan"), "--effect: got nan, expected"),
        (("false-calls", "--contenders", "1"), "--contenders: got 1, expected at least 2"),
        (("serve-retriever", "x", "--port", "99999"), "--port: got 99999, expected a number from 0 to 65535"),
        (("data", "inspect"), "--files (number of values): got 0, expected at least 1; name the question files"),
        (("train", "quickstart", "--resume"), "--resume: got '.', which has no config.toml"),
        (("train", "quickstart", "--resume=nowhere"), "--resume: got 'nowhere', which has no config.toml"),
    ],
)
def test_errors_of_arguments(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert message in error_of(capsys, *words)


class Broken:
    """A command that ends with an error."""

    error: BaseException

    @staticmethod
    def command(_words: list[str], _console: object) -> int:
        raise Broken.error


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> type[Broken]:
    monkeypatch.setitem(a2tgpo.cli.COMMANDS, "broken", (f"{__name__}:command_of_tests", ""))
    monkeypatch.setattr(sys.modules[__name__], "command_of_tests", Broken.command, raising=False)
    return Broken


@pytest.mark.parametrize(
    "kind",
    [
        A2TGPOError,
        CheckpointError,
        ConfigError,
        DataError,
        EngineError,
        MissingExtraError,
        NumericalError,
        RetrievalError,
        RolloutError,
        StorageError,
    ],
)
def test_own_errors_are_one_paragraph(
    capsys: pytest.CaptureFixture[str], broken: type[Broken], kind: type[A2TGPOError]
) -> None:
    broken.error = kind("field: got [x], expected \x1b[31my")
    assert error_of(capsys, "broken") == "error: field: got [x], expected \ufffd[31my"


@pytest.mark.parametrize(
    "fault",
    [ValueError("zip() argument 2 is shorter"), OSError("x"), FileExistsError("x"), TypeError("x"), ImportError("x")],
)
def test_faults_keep_their_traceback_and_ask_to_be_reported(
    capsys: pytest.CaptureFixture[str], broken: type[Broken], fault: Exception
) -> None:
    broken.error = fault
    assert main(["broken"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-2] == f"{type(fault).__name__}: {fault}"
    assert "not of your input. Please report it with the command, the recipe, this traceback" in lines[-1]


def test_ctrl_c_is_one_word(capsys: pytest.CaptureFixture[str], broken: type[Broken]) -> None:
    broken.error = KeyboardInterrupt()
    assert main(["broken"]) == 130
    assert capsys.readouterr().out == "stopped\n"


def test_wrong_type_on_the_command_line() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "quickstart", "--seed", "one", "--dry-run"])
    assert ended.value.code == 2


def test_dry_run_prints_the_complete_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quickstart", "--algorithm", "grpo", "--update.learning-rate", "0.001", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert 'algorithm = "grpo"' in printed
    assert "learning_rate = 0.001" in printed


def recipe_file(folder: Path, text: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(f'name = "try"\n{text}')
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[environment]\nworlds = 2\ntop_k = 5000\n[warm_start]\nmax_steps = 1",
            "top_k: got 5000, expected at most the",
        ),
        (
            (
                '[environment]\nid = "a2tgpo/SearchQA-v0"\ndataset = "none.jsonl"\n[model]\nsource ='
                ' "m"\n[warm_start]\nenabled = false'
            ),
            "m",
        ),
        ('[environment]\nprotocol = "tgas"', "protocol: got 'tgas'"),
        ('[environment]\nid = "a2tgpo/Almanak-v0"', "environment.id: got 'a2tgpo/Almanak-v0', expected one of"),
        (
            "[environment]\nworlds = 2\n[warm_start]\nmax_steps = 2\nevaluate_questions = 8\ndemonstrations = 50",
            "warm_start.target_success: got",
        ),
    ],
)
def test_recipes_that_cannot_be_run_leave_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    runs = tmp_path / "runs"
    assert message in error_of(capsys, "train", recipe_file(tmp_path, text), "--runs", str(runs))
    left = [path for path in runs.rglob("*") if path.is_file() and path.name != ".lock"] if runs.exists() else []
    assert left == []


def test_model_folder_without_tokenizer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny_policy().model.save_pretrained(tmp_path / "model")
    recipe = recipe_file(tmp_path, f'[model]\nsource = "{tmp_path / "model"}"\n[warm_start]\nenabled = false')
    assert "has no tokenizer" in error_of(capsys, "train", recipe, "--runs", str(tmp_path / "runs"))


def test_runs_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    message = error_of(capsys, "compare", "quickstart", "--runs", str(tmp_path / "runs"))
    assert "run folder: cannot write" in message
