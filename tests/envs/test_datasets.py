"""Readers: every shape in the wild, every trap of the hard rows, bad input, streams and splits."""

import gzip
import json
import logging
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from a2tgpo.envs.data.containers import iter_rows
from a2tgpo.envs.data.datasets import iter_items, read, read_aliases, stream, with_aliases
from a2tgpo.envs.data.fields import ShapeError
from a2tgpo.envs.data.rows import BadRow
from a2tgpo.envs.data.shapes import Item, passage_id, to_item
from a2tgpo.envs.data.splits import SPLITS, files_of_split, split_items, split_of
from a2tgpo.envs.records import Question
from a2tgpo.envs.scoring.answers import exact_match, f1
from a2tgpo.errors import DataError
from tests.conftest import shared_file

# file, rows read, rows skipped, questions with supporting passages found
TABLE = [
    ("2wikimultihopqa/questions.jsonl", 300, 0, 300),
    ("bamboogle/questions.jsonl", 80, 0, 0),
    ("hotpotqa/questions.jsonl", 300, 0, 300),
    ("musique/questions.jsonl", 250, 0, 250),
    ("nq/questions.jsonl", 300, 0, 0),
    ("popqa/questions.jsonl", 300, 0, 0),
    ("formats/2wiki_hoprag.jsonl", 10, 0, 10),
    ("formats/bamboogle_flashrag.jsonl", 40, 0, 0),
    ("formats/hotpotqa_columns.json", 20, 0, 20),
    ("formats/hotpotqa_hoprag.jsonl", 10, 0, 10),
    ("formats/hotpotqa_official.json", 20, 0, 20),
    ("formats/musique_official.jsonl", 10, 0, 10),
    ("formats/verl_bamboogle.parquet", 125, 0, 0),
    ("hard_rows.jsonl", 34, 0, 20),
]


@pytest.mark.parametrize(("name", "good", "bad", "supported"), TABLE, ids=[row[0] for row in TABLE])
def test_readers_table(name: str, good: int, bad: int, supported: int) -> None:
    reading = read(shared_file(f"data/{name}"), on_bad_row="skip")
    assert (len(reading.questions), len(reading.bad_rows)) == (good, bad)
    assert sum(bool(question.supporting) for question in reading.questions) == supported
    passages = {passage.id for passage in reading.passages}
    for question in reading.questions:
        assert set(question.supporting) <= passages
        assert question.text == " ".join(question.text.split())
        assert any(answer.strip() for answer in question.answers)


def test_values_of_every_shape() -> None:
    def first(name: str) -> Item:
        return read(shared_file(f"data/formats/{name}")).items[0]

    hotpot = first("hotpotqa_official.json")
    assert (hotpot.question.id, hotpot.question.answers, hotpot.question.metadata["level"]) == (
        "5a77ec115542992a6e59dff7",
        ("a spirit",),
        "easy",
    )
    assert len(hotpot.passages) == 10
    assert "  " not in hotpot.passages[0].text
    columns = first("hotpotqa_columns.json")
    assert columns.question.answers == ("yes",)
    titles = {passage.id: passage.title for passage in columns.passages}
    assert {titles[key] for key in columns.question.supporting} == {"Scott Derrickson", "Ed Wood"}
    musique = first("musique_official.jsonl")
    assert (musique.question.id, musique.question.hops, len(musique.passages)) == ("2hop__227791_75487", 2, 20)
    flashrag = first("bamboogle_flashrag.jsonl").question
    assert (flashrag.id, flashrag.answers) == ("bamboogle_flashrag_test_0", ("james madison",))
    verl = first("verl_bamboogle.parquet").question
    assert (verl.id, verl.text[:9], verl.answers) == ("bamboogle_test_0", "Who was p", ("james madison",))
    assert len(first("2wiki_hoprag.jsonl").question.supporting) == 2


# --- the hard rows: (part of the trap or reason) -> what must hold
# ----------------------------------------------------------------------------------


def hard(why: str) -> tuple[dict[str, Any], Item]:
    path = shared_file("data/hard_rows.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    [row] = [row for row in rows if why in row["hard_why"]]
    items = {item.question.text: item for item in iter_items(path) if isinstance(item, Item)}
    text = " ".join(row["question"].split())
    return row, items.get(text) or items[text[1:-1].replace('""', '"').strip()]


def test_hard_scoring_rows() -> None:
    _, item = hard("gold '25 million'")
    assert exact_match("25 Million.", item.question.answers) == 1
    assert exact_match("25", item.question.answers) == 0
    _, item = hard("13 aliases")
    assert len(item.question.answers) == 13
    assert exact_match("Москва", item.question.answers) == exact_match("Muscovite", item.question.answers) == 1
    for why in ("nested quotes", "alias is a single backslash"):
        _, item = hard(why)
        assert (
            exact_match("the", item.question.answers)
            == exact_match("", item.question.answers)
            == exact_match("?", item.question.answers)
            == 0
        )
    for why, gold in [("NQ gold is the literal ')'", ")"), ("literal '---'", "---"), ("answer '!!!' is all", "!!!")]:
        _, item = hard(why)
        assert item.question.answers == (gold,)
        assert exact_match(gold, item.question.answers) == 1
        assert (
            exact_match("", item.question.answers)
            == exact_match(gold + "?", item.question.answers)
            == f1("", item.question.answers)
            == 0
        )
    _, item = hard("trailing comma")
    assert exact_match("Finnmark County", item.question.answers) == 1
    _, item = hard("gold '1,289,500'")
    assert exact_match("1289500", item.question.answers) == 1
    _, item = hard("45 aliases")
    assert len(item.question.answers) >= 45 - 1
    assert exact_match("Argentina", item.question.answers) == 1
    _, item = hard("gold in Japanese")
    assert f1("異世界はスマートフォンとともに", item.question.answers) == 1
    assert f1("異世界", item.question.answers) == 0  # no word boundaries: all or nothing
    _, item = hard("mixes scripts and parentheses")
    assert exact_match("vaskania βασκανία", item.question.answers) == 1
    _, item = hard("broken span with HTML")
    assert exact_match("r grandfather <a hr", item.question.answers) == 1
    for why in ("whole sentence with stray", "gold is a long paragraph", "flattened table header"):
        _, item = hard(why)
        words = item.question.answers[0].split()
        assert 0 < f1(" ".join(words[: len(words) // 2]), item.question.answers) < 1


def test_hard_reader_rows() -> None:
    _, item = hard("wrapped in literal quotes")
    assert item.question.text == 'Who wrote "A cauliflower is nothing but a cabbage with a college education"?'
    _, item = hard("double space and ' ?'")
    assert "  " not in item.question.text
    row, item = hard("duplicate title inside")
    titles = [passage.title for passage in item.passages]
    assert len(set(titles)) < len(titles) == len(row["contexts"])
    assert len({passage.id for passage in item.passages}) == len(
        {(passage.title, passage.text) for passage in item.passages}
    )
    _, item = hard("HTML entity (&amp;/&quot;)")
    assert "Mitchells & Butlers" in {passage.title for passage in item.passages}
    assert len(item.question.supporting) == 2
    _, item = hard("answer '!!!' is all")
    assert "!!!" in item.question.metadata["supporting_not_in_contexts"]
    _, item = hard("DeepResearcher")
    assert item.question.answers[:3] == ("türkiye", "türkei", "turkey")
    assert item.question.metadata["dataset"] == "triviaqa"
    _, item = hard("joins two golds")
    assert item.question.answers == ("14 December 1972 UTC", "December 1972")
    _, item = hard("without 'context'")
    assert item.passages == ()
    assert item.question.answers == ("no",)
    assert len(item.question.metadata["supporting_not_in_contexts"]) == 4
    _, item = hard("Devanagari")
    assert "कसबा" in item.question.text
    for why in ("needs inference", "occurs in no passage verbatim", "not in any paragraph"):
        assert hard(why)[1].question.answers  # kept: a reward must not need the answer in a passage
    _, item = hard("passage longer than 4000")
    assert max(len(passage.text) for passage in item.passages) > 4_000


def test_every_hard_row_is_read_with_all_its_aliases() -> None:
    path = shared_file("data/hard_rows.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row, item in zip(rows, read(path).items, strict=True):
        if "answers" in row:
            assert item.question.answers == tuple(row["answers"])


# --- shapes
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answer": "Paris"}, ("Paris",)),
        ({"answer": ["Paris", "Paname"]}, ("Paris", "Paname")),
        ({"answer": True}, ("yes",)),
        ({"answer": False}, ("no",)),
        ({"answer": 1999}, ("1999",)),
        ({"answer": {"text": ["a", "b"]}}, ("a", "b")),
        ({"answer": "a", "answer_aliases": ["b", "a"]}, ("a", "b")),
        ({"answer": ["x", None, 3]}, ("x", "3")),
        ({"golden_answers": ["a"], "answer": "b"}, ("a",)),
        ({"possible_answers": '["politician", "political leader"]'}, ("politician", "political leader")),
        ({"answer": "[O.S. 6 January] 1835"}, ("[O.S. 6 January] 1835",)),
        ({"answer": "[sic]"}, ("[sic]",)),
        ({"reward_model": {"ground_truth": {"target": ["a", "b"]}}}, ("a", "b")),
        ({"reward_model": {"ground_truth": "a<|answer_split|>b"}}, ("a", "b")),
        ({"reward_model": {"ground_truth": "a, b"}, "extra_info": {"answer": ["a", "b"]}}, ("a", "b")),
        ({"Answer": {"Value": "a", "Aliases": ["a", "b"]}}, ("a", "b")),
        ({"answer": {"value": "a", "aliases": ["b"], "normalized_aliases": ["b"]}}, ("a", "b")),
    ],
)
def test_answer_shapes(fields: dict[str, Any], answers: tuple[str, ...]) -> None:
    assert to_item({"id": "x", "question": "q?", **fields}, "f:1").question.answers == answers


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "q?"}, "no answer field"),
        ({"question": "q?", "answer": ""}, "empty gold"),
        ({"question": "q?", "answer": []}, "empty gold"),
        ({"question": "q?", "answer": [" ", ""]}, "empty gold"),
        ({"question": "q?", "answer": {"foo": 1}}, "answer object"),
        ({"question": "q?", "answer": None}, "no answer field"),
        ({"answer": "a"}, "no question field"),
        ({"question": "  ", "answer": "a"}, "empty question"),
        ({"question": 3, "answer": "a"}, "no question field"),
        ({"question": "q?", "answer": "a", "answerable": False}, "unanswerable"),
        ({"question": "q?", "answer": "a", "context": {"title": ["a"], "sentences": []}}, "equal length"),
        ({"question": "q?", "answer": "a", "context": [3]}, "context entry"),
        ({"question": "q?", "answer": "a", "context": "[broken"}, "looks like JSON"),
    ],
)
def test_rows_that_are_no_question(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        to_item(row, "f:1")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"id": "5a77"}, "5a77"),
        ({"_id": "abc"}, "abc"),
        ({"id": "test_0"}, "f_test_0"),  # every FlashRAG file has one: the file's name makes it unique
        ({"id": 7, "dataset": "PopQA"}, "popqa_7"),
        ({"QuestionId": "tc_1"}, "tc_1"),
        ({"extra_info": {"index": 3, "split": "train"}, "data_source": "org/hotpotqa"}, "hotpotqa_train_3"),
        ({}, "f:1"),
    ],
)
def test_ids(fields: dict[str, Any], expected: str) -> None:
    assert to_item({"question": "q?", "answer": "a", **fields}, "f:1").question.id == expected


def test_search_r1_prompt_and_numbers_of_hops() -> None:
    prompt = [{"role": "user", "content": "Answer … <answer> Beijing </answer>. Question: Who?\n"}]
    row = {"prompt": prompt, "reward_model": {"ground_truth": {"target": ["x"]}}}
    assert to_item(row, "f:1").question.text == "Who?"
    assert to_item({"id": "3hop1__1_2_3", "question": "q", "answer": "a"}, "f:1").question.hops == 3
    assert (
        to_item({"id": "x", "question": "q", "answer": "a", "question_decomposition": [{}, {}]}, "f:1").question.hops
        == 2
    )


def test_one_title_with_many_texts() -> None:
    context = [["T", ["a."]], ["T", ["b."]], ["T", ["a."]]]
    item = to_item({"question": "q", "answer": "a", "context": context, "supporting_facts": [["T", 0]]}, "f:1")
    assert item.question.supporting == (passage_id("T", "a."), passage_id("T", "b."))
    paragraphs = [{"title": "T", "paragraph_text": text, "is_supporting": text == "b"} for text in "ab"]
    assert to_item({"question": "q", "answer": "a", "paragraphs": paragraphs}, "f:1").question.supporting == (
        passage_id("T", "b"),
    )


def test_official_triviaqa_popqa_and_bamboogle(tmp_path: Path) -> None:
    trivia = {
        "Data": [{"Question": "Who?", "QuestionId": "tc_2", "Answer": {"Value": "A", "Aliases": ["A", "B"]}}],
        "Version": 1.0,
    }
    (tmp_path / "trivia.json").write_text(json.dumps(trivia))
    [question] = read(tmp_path / "trivia.json").questions
    assert (question.id, question.answers) == ("tc_2", ("A", "B"))
    (tmp_path / "popqa.tsv").write_text(
        'id\tquestion\tpossible_answers\n4222361\tWhat is X\'s occupation?\t"[""politician"", ""leader""]"\n',
        encoding="utf-8",
    )
    [question] = read(tmp_path / "popqa.tsv").questions
    assert (question.id, question.answers) == ("popqa_4222361", ("politician", "leader"))
    (tmp_path / "bamboogle.csv").write_text(
        '\ufeffQuestion,Answer\n"Who, me?",You\nbroken,row,here\n', encoding="utf-8"
    )
    reading = read(tmp_path / "bamboogle.csv", on_bad_row="skip")
    assert (reading.questions[0].text, reading.questions[0].answers) == ("Who, me?", ("You",))
    assert [str(bad) for bad in reading.bad_rows] == [
        f"{tmp_path / 'bamboogle.csv'}:3: got another number of fields than the header, expected 2"
    ]


# --- containers and bad input
# ----------------------------------------------------------------------------------------------------


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def some(n: int) -> list[dict[str, Any]]:
    return [{"id": f"q{i}", "question": f"What is {i}?", "answer": f"a{i}"} for i in range(n)]


def test_bad_lines_are_reported_with_file_line_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    good = json.dumps(some(1)[0]).encode()
    lines = [
        b"\xef\xbb\xbf" + good,
        b"",
        b"{broken",
        b'{"question": "\xff", "answer": "a"}',
        b"[1]",
        b'"x"',
        b"[" * 50_000,
        b'{"question": "q?"}',
    ]
    path.write_bytes(b"\n".join([*lines, good, b"x" * 5_000, json.dumps(some(2)[1]).encode()]))
    found = list(iter_items(path, max_row_bytes=60_000))
    reasons = {bad.line: bad.reason for bad in found if isinstance(bad, BadRow)}
    assert all(bad.file == str(path) for bad in found if isinstance(bad, BadRow))
    expected = {
        3: "not JSON",
        4: "not UTF-8",
        5: "JSON list",
        6: "JSON str",
        7: "not JSON",
        8: "no answer",
        9: "already used on line 1",
        10: "not JSON",
    }
    assert list(reasons) == list(expected)
    for line, text in expected.items():
        assert text in reasons[line]
    assert [item.question.id for item in found if isinstance(item, Item)] == ["q0", "q1"]
    with pytest.raises(DataError, match=r"bad\.jsonl:3: not JSON.*on_bad_row='skip'"):
        read(path)


def test_skipping_is_never_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [*some(3), {"question": "q?"}])
    with caplog.at_level(logging.WARNING):
        assert len(read(path, on_bad_row="skip").bad_rows) == 1
        assert len(list(stream([path]))) == 3
    assert [
        re.search(r"\d rows? read, 1 skipped|1 rows skipped", record.message) is not None for record in caplog.records
    ] == [True, True]
    with pytest.raises(DataError, match="no answer"):
        list(stream([path], on_bad_row="error"))


def test_an_endless_line_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(some(1)[0]).encode() + b"\n")
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + json.dumps(some(2)[1]).encode() + b"\n")
    tracemalloc.start()
    found = list(iter_items(path, max_row_bytes=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(item) for item in found] == [Item, BadRow, Item]
    assert isinstance(found[1], BadRow)
    assert "line of 104857601 bytes" in found[1].reason
    assert peak < 16 << 20


@pytest.mark.parametrize("kind", ["array", "pretty", "columns", "gz"])
def test_json_containers(tmp_path: Path, kind: str) -> None:
    rows = some(50)
    path = tmp_path / "x.json"
    match kind:
        case "array":
            path.write_text(json.dumps(rows))
        case "pretty":
            path.write_text("\ufeff  " + json.dumps(rows, indent=2) + "\n", encoding="utf-8")
        case "columns":
            path.write_text(json.dumps({name: [row[name] for row in rows] for name in rows[0]}))
        case "gz":
            path = tmp_path / "x.json.gz"
            path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert [question.id for question in read(path).questions] == [row["id"] for row in rows]


def test_a_json_array_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    row = {"question": "q?", "answer": "a", "padding": "x" * 20_000}
    with path.open("w") as file:
        file.write("[" + ",".join(json.dumps({**row, "id": f"q{i}"}) for i in range(2_000)) + "]")
    tracemalloc.start()
    count = sum(1 for _ in iter_rows(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2_000
    assert peak < path.stat().st_size / 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{}", "expected an array of objects"),
        ('{"a": [1], "b": [1, 2]}', "different lengths"),
        ('{"question": "q", "answer": "a"}\n{"question": "q", "answer": "a"}', r"must be named \.jsonl"),
        ("[]", "no usable question"),
        ("3", "JSON int"),
    ],
)
def test_json_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "x.json", on_bad_row="skip")


def test_a_cut_json_array_gives_its_whole_rows_and_says_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(some(5))[:-20])
    reading = read(tmp_path / "x.json", on_bad_row="skip")
    assert len(reading.items) == 4
    assert "rest of the file" in reading.bad_rows[0].reason
    assert reading.bad_rows[0].line == 5


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match=r"expected one of \.jsonl"):
        read(tmp_path / "x.docx")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(DataError, match="Parquet"):
        read(tmp_path / "x.parquet")
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(json.dumps(some(1)[0]).encode())[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "x.jsonl.gz")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="no usable question"):
        read(tmp_path / "empty.jsonl")


# --- splits and streams
# ----------------------------------------------------------------------------------------------------


def test_splits_cover_everything_once_and_keep_equal_questions_together(tmp_path: Path) -> None:
    rows = some(600) + [{"id": f"copy{i}", "question": f"what is {i} ?", "answer": "other"} for i in range(600)]
    items = read(write_jsonl(tmp_path / "x.jsonl", rows)).items
    parts = {name: split_items(items, name) for name in SPLITS}
    ids = [item.question.id for part in parts.values() for item in part]
    assert sorted(ids) == sorted(row["id"] for row in rows)
    texts = {name: {item.question.text.lower().rstrip(" ?") for item in part} for name, part in parts.items()}
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    for name, share in SPLITS.items():  # 600 draws: three standard deviations are under 0.05
        assert len(parts[name]) / len(items) == pytest.approx(share, abs=0.05)
    assert split_items(items, "dev") == parts["validation"]
    assert split_items(items, "all") == list(items)
    assert split_of(items[0].question, seed=1) in SPLITS
    assert [split_of(item.question, seed=1) for item in items] != [split_of(item.question) for item in items]
    with pytest.raises(ValueError, match="expected all, train"):
        split_items(items, "trein")


def test_splits_do_not_depend_on_the_other_rows() -> None:
    question = Question("x", "What is this?", ("a",))
    assert split_of(question) == split_of(Question("y", "what is THIS", ("b",)))


def test_split_files_in_a_folder(tmp_path: Path) -> None:
    for name in ("hotpot_train_v1.1.json", "hotpot_dev_distractor_v1.json"):
        (tmp_path / name).write_text(json.dumps(some(1)))
    assert files_of_split(tmp_path, "validation") == [tmp_path / "hotpot_dev_distractor_v1.json"]
    assert files_of_split(tmp_path, "dev") == [tmp_path / "hotpot_dev_distractor_v1.json"]
    assert files_of_split(tmp_path, "train") == [tmp_path / "hotpot_train_v1.1.json"]
    with pytest.raises(DataError, match="exactly one file"):
        files_of_split(tmp_path, "test")


def test_streams_are_complete_seeded_and_bounded(tmp_path: Path) -> None:
    paths = [
        write_jsonl(tmp_path / f"{part}.jsonl", [{**row, "id": f"{part}{row['id']}"} for row in some(80)])
        for part in "ab"
    ]
    plain = [item.question.id for item in stream(paths)]
    assert plain == [f"{part}q{i}" for part in "ab" for i in range(80)]
    mixed = [item.question.id for item in stream(paths, seed=1, buffer=50)]
    assert sorted(mixed) == sorted(plain)
    assert mixed != plain
    assert mixed == [item.question.id for item in stream(paths, seed=1, buffer=50)]
    assert mixed != [item.question.id for item in stream(paths, seed=2, buffer=50)]
    assert all(int(key[2:]) < 60 for key in mixed[:10])  # an item cannot come before it was read: 50 held + 10


def test_2wiki_aliases(tmp_path: Path) -> None:
    row = {"_id": "x", "question": "Where?", "answer": "Moscow", "answer_id": "Q649"}
    items = read(write_jsonl(tmp_path / "q.jsonl", [row, {**row, "_id": "y", "answer_id": None}])).items
    (tmp_path / "id_aliases.json").write_text(
        '{"Q_id": "Q649", "aliases": ["Moskva", "Moscow"], "demonyms": ["Muscovite"]}\n'
    )
    extended = with_aliases(items, read_aliases(tmp_path / "id_aliases.json"))
    assert [item.question.answers for item in extended] == [("Moscow", "Moskva", "Muscovite"), ("Moscow",)]
    assert items[0].question.answers == ("Moscow",)
    (tmp_path / "bad.json").write_text("{}\n")
    with pytest.raises(DataError, match=r"bad\.json:1"):
        read_aliases(tmp_path / "bad.json")
