"""The commands around data and retrieval, and the benches at toy size."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from a2tgpo.bench.env import bench_env, synthetic_queries
from a2tgpo.bench.retrieval import bench_retrieval
from a2tgpo.commands.data import data
from a2tgpo.commands.serve import serve_retriever
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.errors import DataError

ROWS = [
    {
        "id": f"q{i}",
        "question": f"Who wrote book {i}?",
        "answer": f"author {i}",
        "context": [[f"Book {i}", [f"By author {i}."]]],
        "supporting_facts": [[f"Book {i}", 0]],
    }
    for i in range(12)
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(command: list[str]) -> str:
    out = io.StringIO()
    assert data(command, Console(file=out, width=200)) == 0
    return out.getvalue()


def test_data_commands(questions: Path, tmp_path: Path) -> None:
    assert "12 questions, 0 bad rows" in run(["inspect", str(questions)])
    assert "12 passages from 12 questions" in run(["corpus", str(questions), "-o", str(tmp_path / "corpus")])
    assert "index over 12 passages" in run(["index", str(tmp_path / "corpus"), "-o", str(tmp_path / "index")])
    assert Bm25Retriever.open(tmp_path / "index").search(["book 7"], 1)[0][0].title == "Book 7"


def test_wrong_data_commands(tmp_path: Path) -> None:
    for words in (["look"], []):
        with pytest.raises(SystemExit) as ended:
            run(words)
        assert ended.value.code == 2
    with pytest.raises(DataError, match="no such file"):
        run(["inspect", str(tmp_path / "nothing.jsonl")])


def test_serving_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        serve_retriever([str(tmp_path / "nothing.jsonl")], Console())


def test_bench_env_counts_one_call_per_step() -> None:
    rows = bench_env(sizes=(1, 8), passages=50, steps=32)
    # 32 steps, three searches in four; the baseline, bm25s's own search, gets a quarter of the steps: 8, a single round
    # of 8 environments
    assert [(row.search, row.num_envs, row.steps, row.retriever_calls) for row in rows] == [
        ("a2tgpo", 1, 32, 24),
        ("a2tgpo", 8, 32, 3),
        ("bm25s", 8, 8, 1),
    ]


def test_bench_retrieval_reports_recall_where_it_is_known(questions: Path) -> None:
    rows = bench_retrieval(questions, backends=("bm25", "rank_bm25"))
    assert [row.passages for row in rows] == [12, 12]
    assert rows[0].recall == (1.0, 1.0, 1.0)  # the number in the question names the book
    assert bench_retrieval(passages=30, queries=5, backends=("bm25",))[0].recall == ()
    with pytest.raises(ValueError, match="backend: got 'bing'"):
        bench_retrieval(passages=30, queries=5, backends=("bing",))
    assert synthetic_queries(3) == synthetic_queries(3)
