"""Results on disk: caching between processes, recording and replaying."""

import json
import logging
import multiprocessing
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.envs.retrieval.base import passages_of
from a2tgpo.envs.retrieval.cache import Cache, Recorder, Replay
from a2tgpo.errors import DataError, RetrievalError

PASSAGES = [Passage("p1", "Mona Lisa", "Painted by Leonardo."), Passage("p2", "Zürich", "A lake.")]


class Counting:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail = False
        self.inner = Bm25Retriever(PASSAGES)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked += queries
        if self.fail:
            raise RetrievalError("down")
        return self.inner.search(queries, k)


def test_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    engine = Counting()
    cache = Cache(engine, tmp_path / "deep" / "cache.db", "bm25 corpus-a")
    first = cache.search(["mona", "lake", "mona"], 2)
    assert engine.asked == ["mona", "lake"]
    assert cache.search(["lake", "zurich", "mona"], 2) == [first[1], engine.inner.search(["zurich"], 2)[0], first[0]]
    assert engine.asked == ["mona", "lake", "zurich"]
    again = Cache(Counting(), tmp_path / "deep" / "cache.db", "bm25 corpus-a")
    assert again.search(["mona", "lake", "mona"], 2) == first
    assert again.inner.asked == []  # type: ignore[attr-defined]


def test_entries_of_another_engine_or_k_are_not_used(tmp_path: Path) -> None:
    Cache(Counting(), tmp_path / "c", "a").search(["mona"], 1)
    for engine_name, k in (("b", 1), ("a", 2)):
        engine = Counting()
        Cache(engine, tmp_path / "c", engine_name).search(["mona"], k)
        assert engine.asked == ["mona"]


def test_failures_are_not_cached(tmp_path: Path) -> None:
    engine = Counting()
    cache = Cache(engine, tmp_path / "c", "a")
    engine.fail = True
    with pytest.raises(RetrievalError):
        cache.search(["mona"], 1)
    engine.fail = False
    assert passages_of(cache.search(["mona"], 1))[0][0].id == "p1"


def _fill(path: str, start: int) -> int:
    engine = Counting()
    cache = Cache(engine, path, "a")
    for n in range(60):
        assert passages_of(cache.search([f"mona {(start + n) % 90}"], 1))[0][0].id == "p1"
    return len(engine.asked)


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(_fill, [(str(tmp_path / "c"), start) for start in (0, 30, 60)])
    assert _fill(str(tmp_path / "c"), 0) == _fill(str(tmp_path / "c"), 30) == 0  # all 90 queries are there


def test_a_fork_opens_its_own_connection(tmp_path: Path) -> None:
    cache = Cache(Counting(), tmp_path / "c", "a")
    cache.search(["mona"], 1)
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.search(["mona"], 1) == cache.search(["mona"], 1)
    cache.close()
    assert passages_of(cache.search(["mona"], 1))[0][0].id == "p1"


def test_a_damaged_cache_is_left_aside_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "c").write_bytes(b"this is no database" * 100)
    engine = Counting()
    cache = Cache(engine, tmp_path / "c", "a")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert passages_of(cache.search(["mona"], 1))[0][0].id == "p1"
    assert len(engine.asked) == 3
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1


def test_many_queries_at_once(tmp_path: Path) -> None:
    cache = Cache(Counting(), tmp_path / "c", "a")
    queries = [f"lake {n}" for n in range(1_300)]
    assert cache.search(queries, 1) == cache.search(queries, 1)
    assert len(cache.inner.asked) == 1_300  # type: ignore[attr-defined]


def test_record_and_replay(tmp_path: Path) -> None:
    engine = Counting()
    recorder = Recorder(engine, tmp_path / "tape.jsonl")
    first = recorder.search(["mona", "lake \ud800\u2028"], 2)
    engine.fail = True
    with pytest.raises(RetrievalError, match="down"):
        recorder.search(["mona"], 2)
    replay = Replay(tmp_path / "tape.jsonl")
    assert replay.search(["mona", "lake \ud800\u2028"], 2) == first
    for _ in range(2):  # then it was down, and stays so
        with pytest.raises(RetrievalError, match="down"):
            replay.search(["mona"], 2)
    assert replay.search(["lake \ud800\u2028"], 2) == [first[1]]
    with pytest.raises(RetrievalError, match="not in the recording"):
        replay.search(["mona"], 3)


def test_wrong_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable recording"):
        Replay(tmp_path / "nothing")
    (tmp_path / "tape").write_text(json.dumps({"query": "x", "k": 1, "hits": []}) + "\n{}\n")
    with pytest.raises(DataError, match="tape:2"):
        Replay(tmp_path / "tape")
