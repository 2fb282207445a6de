"""Made-up rows of the shapes and traps found in the wild (tests/data/rows), so that every clone proves the readers."""

import json
from typing import Any

import pytest

from a2tgpo.envs import PROTOCOLS
from a2tgpo.envs.data.datasets import iter_items, read
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.scoring.answers import exact_match, f1
from tests.conftest import DATA

ROWS = DATA / "rows"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "first", "passages", "supporting"),
    [
        # the file, answers of its first question, passages in the file, supporting titles of that question
        ("hotpotqa_official.json", ("Tessa Quill",), 5, {"Kloford", "Ossel Works", "Tessa Quill"}),
        ("hotpotqa_columns.json", ("Tessa Quill",), 5, {"Kloford", "Ossel Works", "Tessa Quill"}),
        ("hotpotqa_hoprag.jsonl", ("Tessa Quill",), 5, {"Kloford", "Ossel Works", "Tessa Quill"}),
        ("2wiki_hoprag.jsonl", ("Tessa Quill",), 5, {"Kloford", "Ossel Works", "Tessa Quill"}),
        ("musique_official.jsonl", ("Merrow Hill", "Merrow", "Merrowhill"), 5, {"Kloford", "Vandria"}),
        ("flashrag.jsonl", ("orrin vale",), 0, set()),
        ("verl.parquet", ("orrin vale",), 0, set()),
        ("prepared.jsonl", ("Tessa Quill",), 5, {"Kloford", "Tessa Quill"}),
    ],
)
def test_shapes(name: str, first: tuple[str, ...], passages: int, supporting: set[str]) -> None:
    reading = read(ROWS / name)
    assert len(reading.questions) == (20 if name == "prepared.jsonl" else 2)
    assert reading.questions[0].answers == first
    titles = {passage.id: passage.title for passage in reading.passages}
    assert len(titles) == passages
    assert {titles[key] for key in reading.questions[0].supporting} == supporting
    assert all(passage.text == " ".join(passage.text.split()) for passage in reading.passages)
    assert reading.questions[1].text == " ".join(reading.questions[1].text.split())


def test_musique_tells_its_hops() -> None:
    assert [question.hops for question in read(ROWS / "musique_official.jsonl").questions] == [2, 3]


HARD = lines("hard.jsonl")


@pytest.mark.parametrize("number", range(len(HARD)), ids=[row["expected"]["why"] for row in HARD])
def test_hard_rows(number: int) -> None:
    row, expected = HARD[number], HARD[number]["expected"]
    item = list(iter_items(ROWS / "hard.jsonl"))[number]
    assert isinstance(item, Item)
    question, golds = item.question, item.question.answers
    assert golds == tuple(expected.get("answers") or row.get("answers") or [row["answer"]])
    assert question.text == expected.get("text", row["question"])
    assert [exact_match(right, golds) for right in expected["right"]] == [1] * len(expected["right"])
    assert [exact_match(wrong, golds) for wrong in expected["wrong"]] == [0] * len(expected["wrong"])
    if "partial" in expected:
        assert 0 < f1(expected["partial"], golds) < 1
    assert expected.get("metadata", {}).items() <= question.metadata.items()
    assert len(item.passages) == expected.get("passages", 5 if "context" in row else 0)
    assert len(question.supporting) == expected.get("supporting", len(question.supporting))
    assert {passage.title for passage in item.passages} >= set(expected.get("titles", []))


def test_a_gold_answer_without_words_is_worth_nothing_to_an_empty_answer() -> None:
    for row in HARD:
        golds = row["expected"].get("answers") or row.get("answers") or [row["answer"]]
        assert exact_match("", golds) == f1("", golds) == 0


def test_outputs_have_the_kind_that_the_protocol_defines() -> None:
    rows = lines("outputs.jsonl")
    assert [str(PROTOCOLS["tags"].parse(row["response"]).kind) for row in rows] == [row["tags"] for row in rows]
    for protocol in PROTOCOLS.values():
        assert all(str(protocol.parse(row["response"]).kind) in ("search", "answer", "invalid") for row in rows)
