"""Search engines behind one batched call."""

from a2tgpo.envs.retrieval.base import LocalRetriever, RetrievalError, Retriever
from a2tgpo.envs.retrieval.bm25 import Bm25Retriever
from a2tgpo.envs.retrieval.rank import RankBm25Retriever

__all__ = ["Bm25Retriever", "LocalRetriever", "RankBm25Retriever", "RetrievalError", "Retriever"]
