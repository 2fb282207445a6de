"""Every example runs as it stands, with short settings where it would take minutes."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from a2tgpo.config import (
    EnvironmentSettings,
    ModelSettings,
    Recipe,
    RolloutSettings,
    TrainingSettings,
    UpdateSettings,
    WarmStartSettings,
)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LENGTHS = {"agent_loop": 40, "train_and_plot": 60, "my_algorithm": 30}
"""Lines that an example promises to need at most."""


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_are_as_short_as_they_promise() -> None:
    for name, limit in LENGTHS.items():
        assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= limit, name


def test_agent_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded("agent_loop").main(episodes=6) > 0
    assert "exact match over 6 questions" in capsys.readouterr().out


def test_vector_loop_runs_as_a_script() -> None:
    """In a process of its own: the environments are processes too."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        "import sys; sys.path.insert(0, 'examples'); import vector_loop; vector_loop.main(4, 2)",
    ]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "episodes on 2 processes" in done.stdout


def test_my_retriever() -> None:
    # shared words: q1 "father of Ada Lovelace" → Ada, Byron ("was"); q3 "river does Paris lie" → Paris alone has
    # "Paris"
    found = loaded("my_retriever").main()
    assert [ids[0] for ids in found] == ["1", "1", "4"]


def test_train_and_plot(tmp_path: Path) -> None:
    recipe = Recipe(
        environment=EnvironmentSettings(worlds=2, max_turns=3, max_searches=2),
        model=ModelSettings(source="tiny"),
        warm_start=WarmStartSettings(
            target_success=0.0, max_steps=10, evaluate_every=10, evaluate_questions=8, demonstrations=200
        ),
        rollout=RolloutSettings(questions=2, group_size=2, max_action_tokens=6, max_episode_tokens=200),
        update=UpdateSettings(mini_batches=2),
        training=TrainingSettings(steps=1, evaluate_every=1, evaluate_questions=8),
    )
    picture = loaded("train_and_plot").main(recipe, tmp_path)
    assert picture.stat().st_size > 1000
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == {
        "a2tgpo-s0",
        "grpo-s0",
        "curves.png",
    }
