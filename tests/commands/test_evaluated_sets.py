"""Several data sets with a split each, whole suites, and what is missing of them."""

import json
from pathlib import Path

import pytest

from a2tgpo.cli import main
from a2tgpo.commands.evaluated_sets import asked_sets
from a2tgpo.config import load_recipe
from a2tgpo.envs.data.suites import PUBLIC_SETS, SUITES
from a2tgpo.envs.registration import DATASETS
from a2tgpo.errors import ConfigError, DataError

FILES = {"validation": "dev.jsonl", "test": "test.jsonl"}


def write_set(folder: Path, name: str, rows: int) -> None:
    """Questions whose paragraph is the only one with the answer."""
    lines = [
        {
            "_id": f"{folder.name}-{row}",
            "question": f"Where does the person {row} of {folder.name} live?",
            "answer": f"Town{row}",
            "context": [[f"Town{row}", [f"The person {row} of {folder.name} lives in Town{row}."]], ["Else", ["No."]]],
            "supporting_facts": [[f"Town{row}", 0]],
        }
        for row in range(rows)
    ]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("A2TGPO_DATA", str(tmp_path))
    return tmp_path


def test_the_seven_sets_are_those_that_have_an_id() -> None:
    assert {entry.id: entry.folder for entry in PUBLIC_SETS} == DATASETS
    assert sum(entry.questions for entry in PUBLIC_SETS) == 51_713
    assert [entry.title for entry in SUITES["multi-hop"]] == ["HotpotQA", "2WikiMultihopQA", "MuSiQue", "Bamboogle"]
    assert [entry.title for entry in SUITES["single-hop"]] == ["NQ", "TriviaQA", "PopQA"]


def test_every_set_has_a_split_of_its_own() -> None:
    names = ("HotpotQA:validation", "mine.jsonl", "PopQA", "a:b/c")
    sets = asked_sets(load_recipe("quickstart"), names, "", "test", "")
    assert [(asked.name, asked.split) for asked in sets] == [
        ("HotpotQA:validation", "validation"),
        ("mine.jsonl", "test"),
        ("PopQA", "test"),
        ("a:b/c", "test"),
    ]
    assert [asked.recipe.environment.id.partition("/")[2] for asked in sets] == [
        "HotpotQA-v0",
        "SearchQA-v0",
        "PopQA-v0",
        "SearchQA-v0",
    ]
    assert [asked.recipe.environment.dataset for asked in sets] == ["", "mine.jsonl", "", "a:b/c"]
    [own] = asked_sets(load_recipe("quickstart"), (), "", "", "")
    assert (own.name, own.split) == ("a2tgpo/Almanac-v0", "test")


def test_missing_files_of_a_suite_are_listed_at_once(data: Path) -> None:
    write_set(data / "nq", "train.jsonl", 1)  # not the split that is reported
    write_set(data / "triviaqa", "test.jsonl", 1)
    with pytest.raises(DataError) as told:
        asked_sets(load_recipe("quickstart"), (), "single-hop", "", "")
    text = str(told.value)
    assert text.startswith("--suite single-hop: 2 of 3 data sets are missing below $A2TGPO_DATA")
    assert "NQ: nq/test.jsonl of RUC-NLPIR/FlashRAG_datasets on Hugging Face, into the folder nq" in text
    assert "PopQA: popqa/test.jsonl of" in text
    assert "TriviaQA" not in text
    with pytest.raises(DataError, match="6 of 7 data sets"):
        asked_sets(load_recipe("quickstart"), (), "search-qa", "", "")


def test_words_that_name_no_suite_or_two_things() -> None:
    with pytest.raises(ConfigError, match=r"--suite: got 'search_qa', .*did you mean 'search-qa'\?"):
        asked_sets(load_recipe("quickstart"), (), "search_qa", "", "")
    with pytest.raises(ConfigError, match="expected it alone"):
        asked_sets(load_recipe("quickstart"), ("HotpotQA",), "search-qa", "", "")


def test_a_suite_is_scored_set_by_set_and_on_average(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hotpotqa": 4, "2wikimultihopqa": 3, "musique": 2, "bamboogle": 1}
    for entry in SUITES["multi-hop"]:
        write_set(data / entry.folder, FILES[entry.split], sizes[entry.folder])
    write_set(data / "musique", "questions.jsonl", 5)  # prepared as one file: all of it
    (data / "musique" / "dev.jsonl").unlink()
    words = ["evaluate", "--agent", "lexical", "--suite", "multi-hop", "--published", "Qwen3-4B"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert found["splits"] == {
        "HotpotQA": "validation",
        "2WikiMultihopQA": "validation",
        "MuSiQue": "all",
        "Bamboogle": "test",
    }
    scores = {name: entry["means"]["em"] for name, entry in found["datasets"].items()}
    [average] = found["averages"]
    counts = [4, 3, 5, 1]
    assert average["questions"] == 13
    assert average["over_sets"] == pytest.approx(sum(scores.values()) / 4)
    pooled = sum(count * score for count, score in zip(counts, scores.values(), strict=True)) / 13
    assert average["over_samples"] == pytest.approx(pooled)
    assert "published for Qwen3-4B, not comparable as they stand" in out
    assert "not ranked together" in out
    assert "A2TGPO" in out
    assert main(["evaluate", "--agent", "lexical", "--suite", "multi-hop", "--questions", "1"]) == 0
    assert "no published figures for 'tiny'; --published takes one of" in capsys.readouterr().out
    assert main(["evaluate", "--agent", "lexical", "--suite", "search-qa"]) == 2
    assert "3 of 7 data sets are missing" in capsys.readouterr().err
