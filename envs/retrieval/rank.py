"""The reference backend: rank_bm25, plain Python, for small corpora and for checking the fast one."""

from collections.abc import Sequence

import numpy as np
from rank_bm25 import BM25Okapi

from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import check_corpus
from a2tgpo.envs.retrieval.bm25 import check_parameters, top
from a2tgpo.envs.retrieval.text import passage_terms, query_terms


class RankBm25Retriever:
    """rank_bm25's Okapi variant on the same terms as `Bm25Retriever`.

    Its inverse document frequency goes to zero or below for a term in half of the corpus or more, so in tiny corpora it
    finds less; passages with a score of zero or below are not returned.

    Raises:
        ConfigError: if the corpus is empty or ids repeat.
    """

    def __init__(self, passages: Sequence[Passage], k1: float = 1.5, b: float = 0.75) -> None:
        check_corpus(passages, "rank_bm25")
        check_parameters(k1, b)
        self._passages = passages
        # A corpus without a single term would divide by zero inside rank_bm25.
        self._index = BM25Okapi(
            [passage_terms(passage.title, passage.text) or [""] for passage in passages], k1=k1, b=b
        )

    @property
    def passages(self) -> Sequence[Passage]:
        return self._passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`; never fails."""
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> list[Passage]:
        scores = np.asarray(self._index.get_scores(query_terms(query)), dtype=np.float32)
        found = [(self._passages[row], float(scores[row])) for row in top(scores, k)]
        return [Passage(passage.id, passage.title, passage.text, score) for passage, score in found]
