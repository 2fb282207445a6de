"""How well and how fast the search engines find: `a2tgpo bench retrieval`."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from a2tgpo.bench.env import synthetic_corpus, synthetic_queries
from a2tgpo.envs.data.datasets import read
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.retrieval import Bm25Retriever, RankBm25Retriever, Retriever
from a2tgpo.envs.retrieval.base import passages_of
from a2tgpo.errors import ConfigError

RECALL_AT = (3, 5, 10)
_SLOW_QUERIES = 20
"""Queries that the reference backend is timed on; it takes a good part of a second for each at a million passages."""


@dataclass(frozen=True, slots=True)
class RetrievalRow:
    """One backend on one corpus."""

    backend: str
    corpus: str
    passages: int
    build_seconds: float
    queries_per_second: float
    recall: tuple[float, ...]
    """Part of the supporting passages found at `RECALL_AT`; empty where none are known."""
    peak_gigabytes: float
    """Most memory that this process has held so far."""


def bench_retrieval(
    dataset: str | Path | None = None,
    passages: int = 18_000,
    queries: int = 500,
    backends: Sequence[str] = ("bm25", "rank_bm25"),
) -> list[RetrievalRow]:
    """Build every backend over a corpus and search it.

    Args:
        dataset: a question file that comes with paragraphs, which make the corpus and, where they are marked, the
            recall; otherwise the corpus is synthetic.
        passages: size of the synthetic corpus.
        queries: most queries that are timed.
        backends: of "bm25", "rank_bm25", "tantivy".

    Raises:
        DataError: if the file cannot be read.
        ConfigError: for an unknown backend.
    """
    if dataset is not None:
        reading = read(dataset, on_bad_row="skip")
        corpus, questions = list(reading.passages), list(reading.questions)
        asked = [question.text for question in questions][:queries]
    else:
        corpus, questions, asked = synthetic_corpus(passages), [], synthetic_queries(queries)
    name = "synthetic" if dataset is None else str(dataset)
    return [_measure(backend, name, corpus, asked, questions) for backend in backends]


def _measure(
    backend: str, name: str, corpus: Sequence[Passage], asked: Sequence[str], questions: Sequence[Question]
) -> RetrievalRow:
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, Callable[[], Retriever]] = {
            "bm25": lambda: Bm25Retriever(corpus),
            "rank_bm25": lambda: RankBm25Retriever(corpus),
            "tantivy": lambda: _tantivy(corpus, Path(folder) / "index"),
        }
        if backend not in makers:
            raise ConfigError(f"backend: got {backend!r}, expected one of {', '.join(makers)}")
        started = time.perf_counter()
        retriever = makers[backend]()
        built = time.perf_counter() - started
        timed = list(asked[:_SLOW_QUERIES] if backend == "rank_bm25" else asked)
        retriever.search(timed[:1], 3)
        started = time.perf_counter()
        retriever.search(timed, 3)
        speed = len(timed) / (time.perf_counter() - started)
        found = recall(retriever, questions) if backend != "rank_bm25" or len(corpus) < 5_000 else ()
    return RetrievalRow(backend, name, len(corpus), built, speed, found, peak_gigabytes())


def recall(retriever: Retriever, questions: Sequence[Question]) -> tuple[float, ...]:
    """Mean part of a question's supporting passages among the first hits, at each of `RECALL_AT`; the question itself
    is the query.
    """
    supported = [question for question in questions if question.supporting]
    if not supported:
        return ()
    hits = passages_of(retriever.search([question.text for question in supported], max(RECALL_AT)))
    found = []
    for k in RECALL_AT:
        parts = [
            len(set(q.supporting) & {hit.id for hit in h[:k]}) / len(q.supporting)
            for q, h in zip(supported, hits, strict=True)
        ]
        found.append(sum(parts) / len(parts))
    return tuple(found)


def peak_gigabytes() -> float:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 30 if sys.platform == "darwin" else 1 << 20)


def _tantivy(corpus: Sequence[Passage], folder: Path) -> Retriever:
    from a2tgpo.envs.retrieval.tantivy import build_tantivy

    return build_tantivy(corpus, folder)
