"""Closed corpora, inspection, and environments made from files."""

import json
from pathlib import Path

import gymnasium as gym
import pytest

import a2tgpo.envs  # noqa: F401 (registers the ids)
from a2tgpo.envs.data.corpus import build_corpus, corpus_fingerprint, read_corpus
from a2tgpo.envs.data.fields import FieldNames
from a2tgpo.envs.data.inspection import answer_type, inspect_file, inspect_files
from a2tgpo.envs.data.splits import check_no_overlap, files_of_split, overlap
from a2tgpo.envs.records import Question
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


def test_inspection_shows_what_was_read_and_what_files_share(tmp_path: Path) -> None:
    rows = [{"nr": n, "Frage": f"What is {n}?", "Lösung": "['a', 'b']", "Texte": [["T", "x"]]} for n in range(20)]
    texts = {"hotpot_train.jsonl": rows[:15], "hotpot_dev.jsonl": rows[13:], "retrieval.jsonl": rows, "notes.md": []}
    for name, part in texts.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    lines = inspect_files([tmp_path], FieldNames("Frage", "Lösung", "Texte"))
    assert "fields of 15 rows: nr, Frage, Lösung, Texte" in lines
    assert "read: question from Frage, gold answers from Lösung, paragraphs from Texte, id from the line" in lines
    assert 'example: hotpot_train:1: "What is 0?"' in lines
    assert '         2 gold answers: "a" | "b"' in lines
    assert '         1 paragraphs: "T": "x"' in lines
    assert lines[-1] == (
        f"questions in both {tmp_path / 'hotpot_train.jsonl'} and {tmp_path / 'hotpot_dev.jsonl'}: 2"
        " (hotpot_train:14 = hotpot_dev:1, hotpot_train:15 = hotpot_dev:2)"
    )
    assert sum("questions, 0 bad rows" in line for line in lines) == 2  # "val" in "retrieval" is no split
    [bad] = [line for line in inspect_file(tmp_path / "retrieval.jsonl").lines() if ":1:" in line]
    assert "no question field" in bad
    assert "found the fields nr, Frage, Lösung, Texte; name it" in bad


def test_overlap_is_refused_whatever_the_ids() -> None:
    train = [Question("a", "Who is it?", ("x",)), Question("b", "Where?", ("y",))]
    other = [Question("c", "who is IT", ("z",)), Question("d", "When?", ("y",)), Question("e", "Who is it", ("z",))]
    assert [(ours.id, theirs.id) for ours, theirs in overlap(train, other)] == [("a", "c")]
    with pytest.raises(DataError, match=r"questions: 1 of the split 'test' are also .* 'who is IT' \(c and a\)"):
        check_no_overlap(train, other, "test")
    check_no_overlap(train, other[1:2])


@pytest.mark.parametrize(
    ("names", "split", "expected"),
    [
        (["retrieval_train.jsonl", "hotpot_validation.jsonl"], "val", ["hotpot_validation.jsonl"]),
        (["HotpotTrain.json", "HotpotDev.json"], "validation", ["HotpotDev.json"]),
        (["train.jsonl.gz", "train.md", "train_stats.txt", "latest.json"], "train", ["train.jsonl.gz"]),
        (["contest.jsonl", "latest.jsonl", "test.jsonl"], "test", ["test.jsonl"]),
        (["dev.tsv", "restrain.tsv"], "valid", ["dev.tsv"]),
        (
            ["train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test-00000-of-00001.parquet"],
            "train",
            ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
        ),
        (["test-00000-of-00001.parquet"], "test", ["test-00000-of-00001.parquet"]),
    ],
)
def test_files_of_a_split(names: list[str], split: str, expected: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in files_of_split(tmp_path, split)] == expected


@pytest.mark.parametrize(
    ("names", "split"),
    [
        (["retrieval.jsonl"], "val"),
        (["train.jsonl", "train.parquet"], "train"),
        (["train-00000-of-00002.parquet"], "train"),
        (["train-00000-of-00002.parquet", "train-00001-of-00003.parquet"], "train"),
        (["train-00000-of-00001.parquet", "train.jsonl"], "train"),
    ],
)
def test_splits_without_their_files(names: list[str], split: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"for split '{split}', expected exactly one file"):
        files_of_split(tmp_path, split)


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


def test_a_corpus_that_cannot_be_built_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "q?", "answer": "a"}')
    for file, message in (("q.jsonl", "no paragraph"), ("absent.jsonl", "no such file")):
        with pytest.raises(DataError, match=message):
            build_corpus([tmp_path / file], tmp_path / "corpus")
        assert not list((tmp_path / "corpus").iterdir())
