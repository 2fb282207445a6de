"""Evaluations summed up, and the command that makes them."""

import csv
import json
from itertools import combinations
from pathlib import Path

import pytest

from a2tgpo.cli import main
from a2tgpo.config import Recipe, to_toml
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.start.tiny import tiny_policy
from a2tgpo.studies.scorecard import calibration_of, fingerprint, lines_of, pass_at


def row(
    question: str, em: float, hops: int = 1, stop: str = "answered", gold: float | None = None
) -> dict[str, object]:
    scores = {"em": em, "f1": em, "searches": 2.0, "turns": 3, "tokens": 50}
    return {"question_id": question, "hops": hops, "type": "t", "stop": stop, "gold_probability": gold, **scores}


def test_pass_at_k_against_all_subsets() -> None:
    for correct in range(6):
        outcomes = [1] * correct + [0] * (5 - correct)
        for k in (1, 2, 3, 5):
            subsets = list(combinations(outcomes, k))
            assert pass_at(k, 5, correct) == pytest.approx(sum(max(subset) for subset in subsets) / len(subsets))


def test_lines_by_hops_with_mean_at_k_and_failed_left_out() -> None:
    rows = [
        row("a", 1.0),
        row("a", 0.0),
        row("b", 0.0, 2, "max_turns"),
        row("b", 0.0, 2),
        row("c", 0.0, 2, "failed"),
        row("c", 0.0, 2, "failed"),
    ]
    everything, one, two = lines_of("set", rows)
    assert [(line.part, line.questions) for line in (everything, one, two)] == [
        ("all", 2),
        ("1 hops", 1),
        ("2 hops", 1),
    ]
    assert everything.values["em"] == 0.25  # mean@2 of a is 0.5, of b 0
    assert everything.values["pass@2"] == 0.5
    assert everything.values["answered"] == 0.75
    assert two.values["em"] == 0


def test_calibration_by_hand() -> None:
    # bins 0.1: right 0 of 1; 0.9 and 0.95: right 1 of 2. ECE = (1·|0 − 0.1| + 2·|0.5 − 0.925|)/3
    found = calibration_of([row("a", 0.0, gold=0.1), row("b", 1.0, gold=0.9), row("c", 0.0, gold=0.95), row("d", 1.0)])
    assert found is not None
    assert found.expected_error == pytest.approx((0.1 + 2 * 0.425) / 3)
    assert found.brier == pytest.approx((0.01 + 0.01 + 0.9025) / 3)
    assert calibration_of([row("a", 1.0)]) is None


@pytest.fixture
def model(tmp_path: Path) -> Path:
    recipe = Recipe()
    tiny_policy(protocol_of(recipe.environment.protocol).tags, 0).save(tmp_path / "model")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    return tmp_path


def test_greedy_evaluation_is_repeatable_and_written_in_three_forms(model: Path) -> None:
    words = ["evaluate", str(model / "model"), "--recipe", str(model / "recipe.toml"), "--questions", "6", "--output"]
    assert main([*words, str(model / "first")]) == 0
    assert main([*words, str(model / "second")]) == 0
    first, second = ((model / name / "evaluation.jsonl").read_text() for name in ("first", "second"))
    assert first == second
    rows = [json.loads(line) for line in first.splitlines()]
    assert len(rows) == 6
    assert all(0 <= found["gold_probability"] <= 1 for found in rows)
    summed = json.loads((model / "first" / "evaluation.json").read_text())["datasets"]["a2tgpo/Almanac-v0"]
    assert summed["fingerprint"] == fingerprint(
        [{key: value for key, value in found.items() if key != "dataset"} for found in rows]
    )
    table = list(csv.DictReader((model / "first" / "evaluation.csv").read_text().splitlines()))
    assert table[0]["part"] == "all"
    assert float(table[0]["em"]) == sum(found["em"] for found in rows) / 6


def test_samples_need_a_temperature(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "evaluate",
        str(model / "model"),
        "--recipe",
        str(model / "recipe.toml"),
        "--questions",
        "2",
        "--samples",
        "2",
    ]
    assert main(words) == 2
    assert "expected 1, or more at --temperature above 0" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--temperature", "1", "--output", str(model / "out")]) == 0
    assert len((model / "out" / "evaluation.jsonl").read_text().splitlines()) == 4
    assert "pass@2" in capsys.readouterr().out


def test_agent_on_a_data_set_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("a2tgpo.baselines.agents")
    question = {"id": "1", "question": "Who wrote Faust?", "golden_answers": ["Goethe"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question) + "\n")
    passages = [
        {"id": f"p{number}", "title": "Faust", "text": f"Faust, part {number}, was written by Goethe."}
        for number in range(3)
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    words = [
        "--datasets",
        str(tmp_path / "questions.jsonl"),
        "--corpus",
        str(tmp_path / "corpus.jsonl"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(["evaluate", "--agent", "lexical", *words]) == 0
    written = json.loads((tmp_path / "out" / "evaluation.jsonl").read_text())
    assert written["question_id"] == "questions_1"
    assert written["searches"] == 1
    assert main(["evaluate", "--agent", "nobody", *words]) == 2
    assert "agent: got 'nobody'" in capsys.readouterr().err
