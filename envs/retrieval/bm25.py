"""BM25 over a corpus in memory: bm25s builds the score matrix, a query is a sum of its columns."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from a2tgpo.checks import check_number
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import check_corpus
from a2tgpo.envs.retrieval.store import open_index, save_index
from a2tgpo.envs.retrieval.text import passage_terms, query_terms

_FEW = 32
"""Up to so many hits, repeated argmax is faster than sorting."""

_DENSE_BYTES = 64 << 20
_DENSE_SHARE = 32
"""Columns of terms in more than one of so many passages are kept dense, within the bytes above."""


class Bm25Retriever:
    """The default search engine: Lucene's BM25 (k1 = 1.5, b = 0.75) on title and text.

    bm25s stores each (term, passage) score when it builds its index, in one sparse column per term. Summing columns
    here gives bm25s's own scores without its per-call overhead, drops passages that share no term with the query, and
    breaks ties by corpus order, so results are reproducible.

    Args:
        index: a finished index over exactly these passages; without one, it is built here.

    Raises:
        ConfigError: if the corpus is empty or ids repeat.
    """

    def __init__(
        self, passages: Sequence[Passage], k1: float = 1.5, b: float = 0.75, *, index: bm25s.BM25 | None = None
    ) -> None:
        if index is None:
            check_corpus(passages, "bm25")
            check_parameters(k1, b)
            index = bm25s.BM25(method="lucene", k1=k1, b=b)
            index.index(_numbered(passages), show_progress=False)
        self._folder: Path | None = None
        self._passages = passages
        self._index = index
        self._vocabulary: dict[str, int] = index.vocab_dict
        self._data: NDArray[np.float32] = index.scores["data"]
        self._rows: NDArray[np.int32] = index.scores["indices"]
        self._starts: list[int] = index.scores["indptr"].tolist()
        self._frequent = self._dense_columns()

    def _dense_columns(self) -> dict[int, NDArray[np.float32]]:
        """The longest columns spelled out, since adding a whole array is many times faster than adding at listed
        rows.
        """
        lengths = np.diff(self._starts)
        affordable = _DENSE_BYTES // (4 * len(self._passages))
        chosen = [
            int(c)
            for c in np.argsort(-lengths, kind="stable")[:affordable]
            if lengths[c] * _DENSE_SHARE > len(self._passages)
        ]
        columns = {}
        for column in chosen:
            dense = np.zeros(len(self._passages), dtype=np.float32)
            start, end = self._starts[column], self._starts[column + 1]
            dense[self._rows[start:end]] = self._data[start:end]
            columns[column] = dense
        return columns

    def save(self, folder: str | Path) -> None:
        """Write the index and its corpus to a folder; see `store.save_index`."""
        save_index(folder, self._index, self._passages)

    @classmethod
    def open(cls, folder: str | Path, corpus: Sequence[Passage] | None = None) -> "Bm25Retriever":
        """Reopen a saved index, memory-mapped: processes that open the same folder share its pages.

        Args:
            corpus: if given, the index must have been built from exactly these passages.

        Raises:
            DataError: if the folder is incomplete or damaged, or does not belong to `corpus`.
        """
        index, passages = open_index(folder, corpus)
        retriever = cls(passages, index=index)
        retriever._folder = Path(folder)
        return retriever

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the saved index instead of receiving a copy; one that was never saved is copied.
        if self._folder is not None:
            return Bm25Retriever.open, (self._folder,)
        return partial(Bm25Retriever, index=self._index), (self._passages,)

    @property
    def passages(self) -> Sequence[Passage]:
        return self._passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`; never fails."""
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> list[Passage]:
        scores = self.scores(query)
        best = top(scores, k)
        hits = []
        for row in best:
            found = self._passages[row]
            hits.append(Passage(found.id, found.title, found.text, float(scores[row])))
        return hits

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of every passage, in corpus order."""
        scores = np.zeros(len(self._passages), dtype=np.float32)
        for term in query_terms(query):
            column = self._vocabulary.get(term)
            if column is None:
                continue
            if column in self._frequent:
                scores += self._frequent[column]
            else:
                start, end = self._starts[column], self._starts[column + 1]
                scores[self._rows[start:end]] += self._data[start:end]
        return scores


def check_parameters(k1: float, b: float) -> None:
    """Raise ConfigError for parameters that BM25 cannot have."""
    check_number("k1", k1, low=0.0)
    check_number("b", b, low=0.0, high=1.0)


def top(scores: NDArray[np.float32], k: int) -> list[int]:
    """Rows of the at most `k` best positive scores, best first, ties in row order."""
    if k > _FEW:
        rows = np.flatnonzero(scores > 0)
        return [int(row) for row in rows[np.argsort(-scores[rows], kind="stable")[:k]]]
    left, best = scores.copy(), []
    for _ in range(k):
        row = int(left.argmax())  # the first of equal ones
        if left[row] <= 0:
            break
        best.append(row)
        left[row] = 0
    return best


def _numbered(passages: Sequence[Passage]) -> tuple[list[list[int]], dict[str, int]]:
    """(term numbers of every passage, numbers of the terms in order of appearance); half the memory of lists of
    words.
    """
    vocabulary: dict[str, int] = {"": 0}  # stands in for passages without a term
    rows = [
        [vocabulary.setdefault(term, len(vocabulary)) for term in passage_terms(passage.title, passage.text)] or [0]
        for passage in passages
    ]
    return rows, vocabulary
