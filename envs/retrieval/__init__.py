"""Search engines behind one batched call. Tantivy and dense search are extras with modules of their own."""

from a2tgpo.envs.retrieval.base import LocalRetriever, Retriever
from a2tgpo.envs.retrieval.bm25 import Bm25Retriever
from a2tgpo.envs.retrieval.cache import Cache, Recorder, Replay
from a2tgpo.envs.retrieval.http import HttpRetriever
from a2tgpo.envs.retrieval.rank import RankBm25Retriever
from a2tgpo.envs.retrieval.resilience import CircuitBreaker, Retries, TimeLimit, resilient
from a2tgpo.errors import RetrievalError

__all__ = [
    "Bm25Retriever",
    "Cache",
    "CircuitBreaker",
    "HttpRetriever",
    "LocalRetriever",
    "RankBm25Retriever",
    "Recorder",
    "Replay",
    "Retries",
    "RetrievalError",
    "Retriever",
    "TimeLimit",
    "resilient",
]
