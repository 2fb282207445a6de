"""Closed corpora, inspection, and environments made from files."""

import json
from pathlib import Path

import gymnasium as gym
import pytest

import a2tgpo.envs  # noqa: F401 (registers the ids)
from a2tgpo.envs.data.corpus import build_corpus, corpus_fingerprint, read_corpus
from a2tgpo.envs.data.inspection import answer_type, inspect_file
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.envs.sources import DATA_FOLDER
from a2tgpo.errors import DataError
from tests.conftest import DATA

A = ["A", ["A was written", "by Ann."]]
ROWS = [
    {
        "id": "a",
        "question": "Who wrote A?",
        "answer": "Ann",
        "type": "bridge",
        "context": [A, ["B", ["B."]]],
        "supporting_facts": [["A", 0]],
    },
    {
        "id": "b",
        "question": "who wrote a",
        "answer": "Bob",
        "context": [A, ["A", ["Another A."]]],
        "supporting_facts": [["C", 0]],
    },
    {"id": "c", "question": "Is Paris in Paris?", "answer": "Paris"},
    {"id": "d", "question": "!!!?", "answer": "!!!"},
    {"id": "e", "question": "When?"},
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_a_corpus_is_deduplicated_by_content(questions: Path, tmp_path: Path) -> None:
    built = build_corpus([questions, questions], tmp_path / "corpus")
    # the same file twice: 2 × 4 questions with 2 × 4 paragraphs, of which 3 differ
    assert (built.passages, built.duplicates, built.questions, len(built.bad_rows)) == (3, 5, 8, 2)
    passages = read_corpus(tmp_path / "corpus")
    assert [(passage.title, passage.text) for passage in passages] == [
        ("A", "A was written by Ann."),
        ("B", "B."),
        ("A", "Another A."),
    ]
    assert built.fingerprint == corpus_fingerprint(passages)
    assert json.loads((tmp_path / "corpus" / "manifest.json").read_text())["passages"] == 3
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == ["manifest.json", "passages.jsonl"]


def test_a_corpus_needs_paragraphs(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(ROWS[2]))
    with pytest.raises(DataError, match="no paragraph"):
        build_corpus([tmp_path / "q.jsonl"], tmp_path / "corpus")
    assert not list((tmp_path / "corpus").iterdir())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty corpus"),
        (['{"id": 1, "text": "x"}', '{"id": 1, "text": "y"}'], ":2: id '1' occurs twice"),
        (['{"title": "x"}'], r"c\.jsonl:1: found the fields title, expected a text"),
        (['{"id": 1, "text": "x"}', "{"], r"c\.jsonl:2: not JSON"),
    ],
)
def test_corpora_that_cannot_be_used(tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        read_corpus(tmp_path / "c.jsonl")


def test_corpus_rows(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        '{"id": "1", "contents": "\\"Title\\"\\nText\\nmore"}\n{"_id": 2, "title": "T", "text": "x"}\n{"id": 3, "text":'
        ' "y"}\n'
    )
    assert [(p.id, p.title, p.text) for p in read_corpus(tmp_path / "c.jsonl")] == [
        ("1", "Title", "Text\nmore"),
        ("2", "T", "x"),
        ("3", "", "y"),
    ]


def test_inspection(questions: Path) -> None:
    report = inspect_file(questions)
    assert (report.questions, len(report.bad_rows), report.aliases, report.passages) == (4, 1, 4, 3)
    assert report.duplicate_questions == ["b"]
    assert report.empty_gold_answers == ["d"]
    assert report.answer_in_question == ["c"]
    assert report.answer_missing == ["b"]
    assert report.supporting_missing == ["b"]
    assert report.types == {"bridge": 1, "unknown": 3}
    assert report.answer_types == {"span": 3, "empty": 1}
    text = "\n".join(report.lines())
    assert "4 questions, 1 bad rows" in text
    assert "questions.jsonl:5: no answer" in text


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("yes", "yes/no"),
        ("1,289,500", "number"),
        ("25 million", "span"),
        ("September 23, 1935", "date-like"),
        ("!!!", "empty"),
        ("w " * 11, "long"),
        ("Moscow", "span"),
    ],
)
def test_answer_types(answer: str, kind: str) -> None:
    assert answer_type(answer) == kind


def test_environments_from_files(questions: Path, tmp_path: Path) -> None:
    env = gym.make("a2tgpo/SearchQA-v0", dataset=questions, on_bad_row="skip", top_k=2)
    env.reset(options={"question_id": "a"})
    assert "by Ann" in env.step("<think>x</think><search>what was written</search>")[0]
    build_corpus([questions], tmp_path / "corpus")
    Bm25Retriever(read_corpus(tmp_path / "corpus")).save(tmp_path / "index")
    for corpus in (tmp_path / "corpus", tmp_path / "corpus" / "passages.jsonl", tmp_path / "index"):
        other = gym.make(
            "a2tgpo/SearchQA-v0",
            dataset=questions,
            on_bad_row="skip",
            top_k=2,
            corpus=corpus,
            cache=tmp_path / "cache.db",
        )
        other.reset(options={"question_id": "a"})
        assert "by Ann" in other.step("<think>x</think><search>what was written</search>")[0]


def test_a_named_data_set_is_looked_up_in_the_data_folder(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_FOLDER, raising=False)
    with pytest.raises(DataError, match=f"set {DATA_FOLDER} to the folder"):
        gym.make("a2tgpo/HotpotQA-v0")
    (tmp_path / "data" / "hotpotqa").mkdir(parents=True)
    questions.rename(tmp_path / "data" / "hotpotqa" / "hotpot_dev_distractor_v1.jsonl")
    monkeypatch.setenv(DATA_FOLDER, str(tmp_path / "data"))
    env = gym.make("a2tgpo/HotpotQA-v0", split="validation", on_bad_row="skip", top_k=1)
    assert "Question:" in env.reset(seed=0)[0]
    with pytest.raises(DataError, match="exactly one file"):
        gym.make("a2tgpo/HotpotQA-v0", split="train")


def test_wrong_environments_are_refused(questions: Path) -> None:
    with pytest.raises(ValueError, match="dataset: got none"):
        gym.make("a2tgpo/SearchQA-v0")
    with pytest.raises(DataError, match=r"questions\.jsonl:5: no answer"):
        gym.make("a2tgpo/SearchQA-v0", dataset=questions)
    with pytest.raises(ValueError, match="top_k: got 30"):
        gym.make("a2tgpo/SearchQA-v0", dataset=questions, on_bad_row="skip", top_k=30)
    with pytest.raises(ValueError, match="retriever: got 'bing'"):
        gym.make("a2tgpo/SearchQA-v0", dataset=questions, on_bad_row="skip", retriever="bing")
    with pytest.raises(ValueError, match="come without paragraphs"):
        gym.make("a2tgpo/SearchQA-v0", dataset=DATA / "rows" / "flashrag.jsonl")
