"""The paper's figures, from runs whose numbers are known."""

import json
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

from a2tgpo.cli import main
from a2tgpo.config import StudySettings
from a2tgpo.report import paper_frames
from a2tgpo.report.paper_figures import FIGURES, write_paper_figures
from a2tgpo.studies.study import load_study, usable
from tests.support.finished_study import finished_study

LOGGED = {"entropy": 0.5, "advantage_min": -1.0, "advantage_mean": 0.25, "advantage_max": 2.0}
LOGGED |= {"action_tokens_min": 3.0, "action_tokens": 5.0, "action_tokens_max": 9.0}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two algorithms, two seeds, a sweep over β, sixteen episodes each."""
    variants: dict[str, Any] = {
        "beta-0.algorithm": "a2tgpo",
        "beta-0.algorithm_options.clip_modulation": 0.0,
        "beta-5.algorithm": "a2tgpo",
        "beta-5.algorithm_options.clip_modulation": 0.5,
    }
    settings = StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1), variants=variants)
    folder = finished_study(tmp_path, settings, episodes=16)
    for path in folder.glob("*/metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().split("\n") if line]
        path.write_text("".join(json.dumps(row | LOGGED) + "\n" for row in rows))
    return folder


def test_every_figure_is_drawn_and_its_numbers_lie_beside_it(study: Path, tmp_path: Path) -> None:
    _, jobs = load_study(study)
    lines = write_paper_figures(usable(jobs), tmp_path / "paper")
    assert len(lines) == len(FIGURES)
    assert [line for line in lines if "left out" in line] == []
    for figure in FIGURES:
        height, width, _ = matplotlib.image.imread(tmp_path / "paper" / f"figure-{figure.number}.png").shape
        assert min(height, width) >= 300
        assert (tmp_path / "paper" / f"figure-{figure.number}.csv").read_text().count("\n") > 1


def test_a_figure_without_numbers_says_what_it_needs(tmp_path: Path) -> None:
    _, jobs = load_study(finished_study(tmp_path, StudySettings(algorithms=("grpo",), seeds=(0,))))
    lines = write_paper_figures(usable(jobs), tmp_path / "paper")
    assert "figure 1 (context similarity per turn index): left out, needs episodes" in lines
    assert any(line.startswith("figure 9") and "needs contenders with at least three values" in line for line in lines)
    assert not (tmp_path / "paper" / "figure-1.png").exists()


def test_similarity_is_the_jaccard_index_of_words(study: Path) -> None:
    """Turn 0 of the two episodes: {search, ada, born, london}, {search, ada, father, london}: 3 of 5 words in common.

    Turn 0 of one with turn 1 of the other: {answer, paris} shares none of them, {answer, london} one of five.
    """
    _, jobs = load_study(study)
    [job] = [job for job in jobs if job.name == "grpo-s0"]
    rows = [
        {"group": 0, "turns": turns(["search", "ada", "born"], "Question", ["answer", "Paris"]), "closing_text": ""},
        {"group": 0, "turns": turns(["search", "Ada", "father"], "Question", ["answer", "London"]), "closing_text": ""},
    ]
    (job.folder / "episodes" / "step-000010.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = paper_frames.context_similarity([job])
    assert {(row.turn, row.other): (row.similarity, row.pairs) for row in frame.itertuples()} == {
        (0, 0): (pytest.approx(3 / 5), 1),
        (0, 1): (pytest.approx(1 / 5), 1),
        (1, 0): (0.0, 1),
        (1, 1): (pytest.approx(1 / 3), 1),
    }


def turns(search: list[str], prompt: str, answer: list[str]) -> list[dict[str, Any]]:
    return [
        {"context_text": prompt, "action_texts": search},
        {"context_text": "London.", "action_texts": answer},
    ]


def test_gain_z_and_advantage_stand_side_by_side(study: Path) -> None:
    """Gains of a group of four are 2.5, 0.3, 0.3, 0.3: mean 0.85, so z of the first is 1.65 / 0.9526 = 1.732."""
    _, jobs = load_study(study)
    frame = paper_frames.gain_to_advantage([job for job in usable(jobs) if job.name == "a2tgpo-s0"])
    assert set(frame["quantity"]) == {"raw gain", "z", "advantage"}
    z = frame[frame["quantity"] == "z"]["value"]
    assert sorted(round(value, 3) for value in set(z.round(4))) == [-0.577, 1.732]
    assert len(paper_frames.gain_to_advantage([job for job in usable(jobs) if job.label == "grpo"])) == 0


def test_algorithms_from_files_are_not_run(study: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('this code must not run')")
    recipe = study / "study.toml"
    recipe.write_text(recipe.read_text().replace('algorithm = "a2tgpo"', f'algorithm = "{evil}:Evil"'))
    for job in (study / "a2tgpo-s0", study / "a2tgpo-s1"):
        config = job / "config.toml"
        config.write_text(config.read_text().replace('algorithm = "a2tgpo"', f'algorithm = "{evil}:Evil"'))
    _, jobs = load_study(study)
    write_paper_figures(usable(jobs), tmp_path / "paper")


def test_the_command_draws_them_beside_the_page(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(study), "--paper"]) == 0
    assert len(list((study / "paper").glob("figure-*.png"))) == len(FIGURES)
    assert "figure 1 (context similarity per turn index)" in capsys.readouterr().out
