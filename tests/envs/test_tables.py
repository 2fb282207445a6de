"""CSV and TSV: no row is lost to a quotation mark, none is read across its end, and every line ends at a newline."""

import gzip
from pathlib import Path

import pytest

from a2tgpo.envs.data.containers import iter_rows
from a2tgpo.envs.data.corpus import read_corpus
from a2tgpo.envs.data.datasets import read
from a2tgpo.envs.data.rows import BadRow, Row
from a2tgpo.errors import DataError


def rows(path: Path, text: str | bytes) -> list[list[str] | str]:
    """The values of every row, or the reason why it is bad."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [list(row.data.values()) if isinstance(row, Row) else row.reason for row in iter_rows(path)]


STRAY = "never closed"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # a mark that opens a field and is not closed is text in TSV
        ("a.tsv", 'id\ttext\n1\t"open\n2\tb\n3\tc\n', [["1", '"open'], ["2", "b"], ["3", "c"]]),
        (
            "a.tsv",
            'id\ttext\ttitle\n1\t"a\tT\n2\tb"\tU\n3\tc\tV\n',
            [["1", '"a', "T"], ["2", 'b"', "U"], ["3", "c", "V"]],
        ),
        ("a.tsv", 'id\ttext\n1\ta\n2\t"open', [["1", "a"], ["2", '"open']]),
        ("a.tsv", 'id\ttext\n1\t"Heroes" (album)\n2\tb\n', [["1", '"Heroes" (album)'], ["2", "b"]]),
        ("a.tsv", 'id\ttext\n1\t5" disk\n2\tsaid "b"\n', [["1", '5" disk'], ["2", 'said "b"']]),
        # quoted as psgs_w100.tsv is
        ("a.tsv", 'id\ttext\ttitle\n1\t"a ""b"" c"\t"""Heroes"" (album)"\n', [["1", 'a "b" c', '"Heroes" (album)']]),
        ("a.tsv", 'id\ttext\n1\t"a\tb"\n2\tc\n', [["1", "a\tb"], ["2", "c"]]),
        ("a.tsv", 'id\ttext\ttitle\n1\t"two\nlines"\tT\n2\tb\tU\n', [["1", "two\nlines", "T"], ["2", "b", "U"]]),
        ("a.tsv", 'text\ttitle\n"two\nlines"\tT\nb\tU\n', [["two\nlines", "T"], ["b", "U"]]),
        ("a.tsv", 'text\ttitle\n"open\nb\tU\nc "d"\tV\n', [STRAY, ["b", "U"], ['c "d"', "V"]]),
        ("a.tsv", 'id\ttext\n1\t"two\n\nlines"\n2\tb\n', [["1", "two\n\nlines"], ["2", "b"]]),
        # CSV: marks mean quoting, and an open one is a bad row of its own
        ("a.csv", 'id,text\n1,"a, b"\n2,c\n', [["1", "a, b"], ["2", "c"]]),
        ("a.csv", 'id,text\n1,"two\nlines, 2"\n2,c\n', [["1", "two\nlines, 2"], ["2", "c"]]),
        ("a.csv", 'id,text\n1,"open\n2,b\n3,c\n', [STRAY, ["2", "b"], ["3", "c"]]),
        ("a.csv", 'id,text\n1,"open\n2,"b, c"\n3,d\n', [STRAY, ["2", "b, c"], ["3", "d"]]),
        ("a.csv", 'id,text\n1,"Heroes" (album)\n2,b\n', [["1", '"Heroes" (album)'], ["2", "b"]]),
        ("a.csv", "id;text\n1;a, b\n", [["1", "a, b"]]),
        ("a.csv", "id,text\n1\n2,b\n\n3,c,d\n", ["expected 2", ["2", "b"], "expected 2"]),
        # ends of lines
        ("a.csv", "id,text\r\n1,a\r\n2,b\n3,c\r\n", [["1", "a"], ["2", "b"], ["3", "c"]]),
        ("a.tsv", "id\ttext\n1\ta\u2028b\x0bc\x85d\n2\te\n", [["1", "a\u2028b\x0bc\x85d"], ["2", "e"]]),
        ("a.tsv", "id\ttext\n1\ta\rb\n2\tc\n", [["1", "a\rb"], ["2", "c"]]),
        ("a.csv", "\ufeffid,text\n1,a\n", [["1", "a"]]),
        ("a.csv", b"id,text\n1,\xff\n2,b\n", ["not UTF-8", ["2", "b"]]),
        ("a.csv", gzip.compress(b"id,text\n1,a\n", mtime=0), [["1", "a"]]),  # gzipped, whatever its name
        ("a.csv", "", []),
    ],
)
def test_records(tmp_path: Path, name: str, text: str | bytes, expected: list[list[str] | str]) -> None:
    found = rows(tmp_path / name, text)
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        assert got == wanted if isinstance(wanted, list) else isinstance(got, str) and wanted in got


def test_ten_rows_are_ten_rows(tmp_path: Path) -> None:
    lines = [f"{i}\ttext {i}\ttitle {i}" for i in range(10)]
    for i in (3, 6, 9):
        lines[i] = lines[i].replace("text", '"text')
    (tmp_path / "psgs.tsv").write_text("id\ttext\ttitle\n" + "\n".join(lines))
    passages = read_corpus(tmp_path / "psgs.tsv")
    assert [passage.text for passage in passages][2:5] == ["text 2", '"text 3', "text 4"]
    assert len(passages) == 10


def test_lines_are_named_by_their_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"two\nlines"\n2,"open\n3,c\n4\n')
    found = list(iter_rows(tmp_path / "a.csv"))
    assert [row.line for row in found] == [2, 4, 5, 6]
    assert [type(row) for row in found] == [Row, BadRow, Row, BadRow]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", b"\xff\xfei\x00d\x00", "got UTF-16, expected UTF-8"),
        ("a.jsonl", b"\xfe\xff\x00{", "got UTF-16, expected UTF-8"),
        ("a.csv", b"id,text,text\n1,a,b\n", r"columns \['text'\] twice"),
        ("a.csv", b"question,answer\ra?,x\rb?,y\r", "lines end in carriage returns alone"),
        ("a.csv", b"\xff,a\n", "the first line must name the columns"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(DataError, match=message):
        list(iter_rows(tmp_path / name))


def test_dpr_tables_have_no_header(tmp_path: Path) -> None:
    text = "who, then?\t['Kloford', \"Old Kloford\"]\nwhere \"now\"?\t['b']\n"
    (tmp_path / "nq-dev.qa.csv").write_text(text)  # tabs, in spite of its name
    questions = read(tmp_path / "nq-dev.qa.csv").questions
    assert [question.answers for question in questions] == [("Kloford", "Old Kloford"), ("b",)]
    assert [question.text for question in questions] == ["who, then?", 'where "now"?']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('0\tA city.\n1\tA "town".\n', [("0", "", "A city."), ("1", "", 'A "town".')]),  # MS MARCO, ColBERT
        ("0\tA city.\tKloford\n", [("0", "Kloford", "A city.")]),
        ("id\ttext\ttitle\n1\tA city.\tKloford\n", [("1", "Kloford", "A city.")]),  # DPR
        ("docid\tbody\n7\tA city.\n", [("7", "", "A city.")]),
    ],
)
def test_corpus_tables(tmp_path: Path, text: str, expected: list[tuple[str, str, str]]) -> None:
    (tmp_path / "collection.tsv").write_text(text)
    assert [(p.id, p.title, p.text) for p in read_corpus(tmp_path / "collection.tsv")] == expected
