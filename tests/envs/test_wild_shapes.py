"""Question files and corpora in the shapes that people have on disk: made-up texts in the fields of the sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from a2tgpo.envs.data.corpus import read_corpus
from a2tgpo.envs.data.datasets import read
from a2tgpo.envs.data.fields import ShapeError
from a2tgpo.envs.data.paragraphs import split_contents, unwrapped
from a2tgpo.envs.data.shapes import passage_id, to_item
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import passages_of
from a2tgpo.envs.retrieval.http import read_answer, to_hit
from a2tgpo.errors import DataError

KLOFORD = ("Kloford", "A city.")

QUESTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...], list[tuple[str, str]], int]] = {
    "KILT": (
        {
            "id": "k1",
            "input": "Where?",
            "output": [
                {"answer": "Kloford", "meta": {"score": 1}, "provenance": [{"wikipedia_id": "1"}]},
                {"provenance": [{"wikipedia_id": "2"}]},
                {"answer": "Old Kloford"},
            ],
        },
        ("Kloford", "Old Kloford"),
        [],
        0,
    ),
    "IRCoT": (
        {
            "question_id": "i1",
            "question_text": "Where?",
            "answers_objects": [
                {"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": ["Kloford", "Old Kloford"]}
            ],
            "contexts": [
                {"idx": 0, "title": "Kloford", "paragraph_text": "A city.", "is_supporting": True},
                {"idx": 1, "title": "Wick", "paragraph_text": "A town.", "is_supporting": False},
            ],
        },
        ("Kloford", "Old Kloford"),
        [KLOFORD, ("Wick", "A town.")],
        1,
    ),
    "IRCoT date": (
        {
            "question_text": "When?",
            "answers_objects": [{"number": "", "date": {"day": "3", "month": "May", "year": "1912"}, "spans": []}],
        },
        ("3 May 1912",),
        [],
        0,
    ),
    "IRCoT number": (
        {"question_text": "How many?", "answers_objects": [{"number": "7", "date": {"day": ""}, "spans": []}]},
        ("7",),
        [],
        0,
    ),
    "FRAMES": (
        {
            "Unnamed: 0": 0,
            "Prompt": "Where?",
            "Answer": "Kloford",
            "wiki_links": "['https://k']",
            "reasoning_types": "x",
        },
        ("Kloford",),
        [],
        0,
    ),
    "SimpleQA": (
        {"metadata": "{'topic': 'x', 'urls': ['u']}", "problem": "Where?", "answer": "Kloford"},
        ("Kloford",),
        [],
        0,
    ),
    "SQuAD row": (
        {
            "id": "s1",
            "title": "Kloford",
            "context": "A city.",
            "question": "Where?",
            "answers": {"text": ["Kloford", "Kloford"], "answer_start": [0, 0]},
        },
        ("Kloford", "Kloford"),
        [KLOFORD],
        0,
    ),
    "DPR": (
        {
            "question": "Where?",
            "answers": ["Kloford"],
            "positive_ctxs": [{"title": "Kloford", "text": "A city.", "score": 1, "passage_id": "3"}],
            "negative_ctxs": [],
            "hard_negative_ctxs": [{"title": "Wick", "text": "A town."}],
        },
        ("Kloford",),
        [KLOFORD, ("Wick", "A town.")],
        1,
    ),
    "DPR ctxs": (
        {
            "question": "Where?",
            "answers": ["Kloford"],
            "ctxs": [{"id": "1", "title": "Kloford", "text": "A city.", "score": "8"}],
        },
        ("Kloford",),
        [KLOFORD],
        0,
    ),
    "TRL": ({"prompt": "Where?", "solution": "Kloford"}, ("Kloford",), [], 0),
    "TRL messages": (
        {"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Where?"}], "solution": "Kloford"},
        ("Kloford",),
        [],
        0,
    ),
    "MS MARCO QA": (
        {
            "query_id": 7,
            "query": "Where?",
            "answers": ["Kloford"],
            "passages": {"is_selected": [0, 1], "passage_text": ["A town.", "A city."], "url": ["u", "v"]},
        },
        ("Kloford",),
        [("", "A town."), ("", "A city.")],
        1,
    ),
    "BrowseComp-Plus": (
        {
            "query_id": "b1",
            "query": "Where?",
            "answer": "Kloford",
            "gold_docs": [{"docid": "1", "text": "A city.", "url": "u"}],
            "negative_docs": [{"docid": "2", "text": "A town.", "url": "v"}],
        },
        ("Kloford",),
        [("", "A city."), ("", "A town.")],
        1,
    ),
    "documents as texts": (
        {"question": "Where?", "answer": "Kloford", "documents": ["A city.", "A town."]},
        ("Kloford",),
        [("", "A city."), ("", "A town.")],
        0,
    ),
    "documents as contents": (
        {"question": "Where?", "answer": "Kloford", "documents": [{"id": 1, "contents": '"Kloford"\nA city.'}]},
        ("Kloford",),
        [KLOFORD],
        0,
    ),
    "texts by title": (
        {"question": "Where?", "answer": "Kloford", "context": {"Kloford": ["A", " city."], "Wick": "A town."}},
        ("Kloford",),
        [("Kloford", "A city."), ("Wick", "A town.")],
        0,
    ),
    "messages in parts": (
        {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Where?"}]}], "solution": "Kloford"},
        ("Kloford",),
        [],
        0,
    ),
    "other capitals": ({"QUESTION": "Where?", "Answers": ["Kloford"]}, ("Kloford",), [], 0),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(name: str) -> None:
    row, answers, passages, supporting = QUESTIONS[name]
    item = to_item(row, "f:1")
    assert item.question.text in ("Where?", "When?", "How many?")
    assert item.question.answers == answers
    assert [(passage.title, passage.text) for passage in item.passages] == passages
    assert len(item.question.supporting) == supporting


def test_official_squad(tmp_path: Path) -> None:
    qas = [
        {"id": "a", "question": "Where?", "answers": [{"text": "Kloford", "answer_start": 0}], "is_impossible": False},
        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    articles = [{"title": "Kloford", "paragraphs": [{"context": "A city.", "qas": qas}]}]
    (tmp_path / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    reading = read(tmp_path / "squad.json", on_bad_row="skip")
    [item] = reading.items
    assert (item.question.id, item.question.answers) == ("a", ("Kloford",))
    assert (item.passages[0].title, item.passages[0].text) == KLOFORD
    assert [bad.line for bad in reading.bad_rows] == [2]


CORPORA: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "HippoRAG.json": (
        json.dumps([{"title": "Kloford", "text": "A city.", "idx": 0}, {"title": "Wick", "text": "A town.", "idx": 0}]),
        [(passage_id(*KLOFORD), *KLOFORD), (passage_id("Wick", "A town."), "Wick", "A town.")],
    ),
    "titles.json": (
        json.dumps({"Kloford": ["A", " city."], "Wick": ["A town.", " Old.", " Small."]}),
        [(passage_id(*KLOFORD), *KLOFORD), (passage_id("Wick", "A town. Old. Small."), "Wick", "A town. Old. Small.")],
    ),
    "by id.json": (
        json.dumps({"7": {"title": "Kloford", "text": "A city."}, "8": {"id": "x", "title": "", "text": "A town."}}),
        [("7", *KLOFORD), ("x", "", "A town.")],
    ),
    "below a name.json": (json.dumps({"passages": [{"id": 1, "text": "A city."}]}), [("1", "", "A city.")]),
    "KILT.jsonl": (
        json.dumps({"wikipedia_id": "290", "wikipedia_title": "Kloford", "text": ["Kloford\n", "A", "city."]}),
        [("290", *KLOFORD)],
    ),
    "BEIR.jsonl": (
        json.dumps({"_id": "d1", "title": "Kloford", "text": "A city."}),
        [("d1", *KLOFORD)],
    ),
    "BrowseComp.jsonl": (json.dumps({"docid": "5", "text": "A city.", "url": "u"}), [("5", "", "A city.")]),
    "MARCO.jsonl": (json.dumps({"pid": 3, "passage": "A city."}), [("3", "", "A city.")]),
    "documents.jsonl": (
        json.dumps({"docid": "D1", "url": "u", "title": "Kloford", "body": "A city."}),
        [("D1", *KLOFORD)],
    ),
    "FlashRAG.jsonl": (json.dumps({"id": "0", "contents": '"Kloford"\nA city.'}), [("0", *KLOFORD)]),
    "plain contents.jsonl": (json.dumps({"id": "0", "contents": "A city."}), [("0", "", "A city.")]),
    "title and contents.jsonl": (
        json.dumps({"id": "0", "title": "Kloford", "contents": "A city.\nOld."}),
        [("0", "Kloford", "A city.\nOld.")],
    ),
    "title twice.jsonl": (
        json.dumps({"id": "0", "title": "Kloford", "contents": "Kloford\nA city."}),
        [("0", *KLOFORD)],
    ),
    "number.jsonl": (json.dumps({"id": 1984.0, "title": 1984, "text": "A year."}), [("1984", "1984", "A year.")]),
    "empty text.jsonl": (json.dumps({"id": "1", "title": "Kloford", "text": ""}), [("1", "Kloford", "")]),
}


@pytest.mark.parametrize("name", CORPORA)
def test_corpora(name: str, tmp_path: Path) -> None:
    text, expected = CORPORA[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [(p.id, p.title, p.text) for p in read_corpus(tmp_path / name)] == expected


def test_equal_rows_without_an_id_are_one_passage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": "A city."}, {"text": "A town."}, {"text": "A city."}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [passage.text for passage in read_corpus(tmp_path / "c.jsonl")] == ["A city.", "A town."]
    assert "1 rows without an id repeat another one" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "1", "absatz": "Eine Stadt."}, "found the fields id, absatz, expected a text"),
        ({"id": "1", "text": None}, "found the fields id, text"),
        ({"id": "1", "text": 3}, "found the fields id, text"),
        ({"id": "1", "text": [1, 2]}, "found the fields id, text"),
    ],
)
def test_corpus_rows_without_a_text_say_what_was_found(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=rf"c\.jsonl:1: {message}"):
        read_corpus(tmp_path / "c.jsonl")


@pytest.mark.parametrize("field", ["documents", "ctxs", "passages", "context"])
@pytest.mark.parametrize("value", [[3], [["a", 3]], [{"title": "x"}], 7, [["a", "b", "c"]]])
def test_paragraphs_of_another_shape_are_named(field: str, value: Any) -> None:
    with pytest.raises(ShapeError, match="context"):
        to_item({"question": "q?", "answer": "a", field: value}, "f:1")


TITLES = [
    ("Kloford", "Kloford"),
    ('"Kloford"', "Kloford"),
    ('"""Heroes"" (album)"', '"Heroes" (album)'),  # as wiki-18 writes it
    ('""Heroes" (album)"', '"Heroes" (album)'),  # wrapped by a server that does not double
    ('"The "Best" Of"', 'The "Best" Of'),
    ('"Heroes" (album)', '"Heroes" (album)'),
    ('"Heroes" and "Villains"', '"Heroes" and "Villains"'),
    ('"""Heroes"""', '"Heroes"'),
    ('5" disk', '5" disk'),
    ('"', '"'),
    ('""', ""),
    ("", ""),
]


@pytest.mark.parametrize(("written", "title"), TITLES)
def test_titles_lose_their_wrapping_and_keep_their_own_marks(written: str, title: str) -> None:
    assert unwrapped(written) == title


@pytest.mark.parametrize("title", ["Kloford", '"Heroes" (album)', 'The "Best" Of', '"A" and "B"', '"', "", 'a"', '""'])
@pytest.mark.parametrize("text", ["A city.", "", 'Two\n"lines"', "Kloford\nA city."])
def test_a_title_is_the_same_from_a_file_and_over_http(title: str, text: str, tmp_path: Path) -> None:
    hit = to_hit(Passage("1", title, text), False)
    answer = json.dumps({"result": [[hit]]}).encode()
    [[passage]] = passages_of(read_answer(answer, 1, 1))
    (tmp_path / "c.jsonl").write_text(json.dumps(hit))
    [read_back] = read_corpus(tmp_path / "c.jsonl")
    assert (passage.title, passage.text) == (read_back.title, read_back.text) == (title, text)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ("A text without a title.", ("", "A text without a title.")),
        ('"Kloford"\n', ("Kloford", "")),
        ("Kloford\nA city.", ("Kloford", "A city.")),
        ("Kloford\n", ("", "Kloford\n")),
        ("x" * 400 + "\nA city.", ("", "x" * 400 + "\nA city.")),
        ("", ("", "")),
        ('""\nA city.', ("", "A city.")),
    ],
)
def test_contents(contents: str, expected: tuple[str, str]) -> None:
    assert split_contents(contents) == expected


def test_half_surrogates_are_bad_rows_with_their_line(tmp_path: Path) -> None:
    good = {"question": "q?", "answer": "a"}
    bad = [
        '{"question": "\\ud83d?", "answer": "a"}',
        '{"question": "q?", "answer": ["a", "\\uDE00"]}',
        '{"question": "q?", "answer": "a", "context": [["T", ["\\ud83d."]]]}',
        '{"question": "q?", "answer": "a", "\\ud83d": 1}',
    ]
    lines = [json.dumps(good | {"answer": "\N{GRINNING FACE}"}), *bad]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    (tmp_path / "x.json").write_text("[" + ",".join(lines) + "]")
    (tmp_path / "y.json").write_text('{"Data": [' + ",".join(lines) + "]}")
    for name in ("x.jsonl", "x.json", "y.json"):
        reading = read(tmp_path / name, on_bad_row="skip")
        assert reading.questions[0].answers == ("\N{GRINNING FACE}",)
        assert [row.line for row in reading.bad_rows] == [2, 3, 4, 5]
        assert all("half of a surrogate pair" in row.reason for row in reading.bad_rows)
    (tmp_path / "c.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "\\ud83d"}')
    with pytest.raises(DataError, match=r"c\.jsonl:2: text: half of a surrogate pair"):
        read_corpus(tmp_path / "c.jsonl")


def test_parquet_rows_that_are_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    texts = pyarrow.array([b"q0?", b"q\xff?", b"q2?"], pyarrow.binary()).view(pyarrow.string())
    answers = pyarrow.array([["a"], ["b"], ["c"]])
    parquet.write_table(pyarrow.table({"question": texts, "answers": answers}), tmp_path / "x.parquet")
    reading = read(tmp_path / "x.parquet", on_bad_row="skip")
    assert [question.text for question in reading.questions] == ["q0?", "q2?"]
    assert [str(bad) for bad in reading.bad_rows] == [f"{tmp_path / 'x.parquet'}:2: not UTF-8"]
