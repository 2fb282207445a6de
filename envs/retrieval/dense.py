"""Search by meaning: an E5-style sentence encoder and FAISS (extra `dense`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from a2tgpo.checks import check_whole
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import check_corpus
from a2tgpo.errors import ConfigError, MissingExtraError

Encoder = Callable[[list[str]], NDArray[np.float32]]
"""Texts to vectors, one row each."""


class DenseRetriever:
    """Exact inner-product search over unit vectors.

    Args:
        encode: the encoder; `sentence_encoder` loads one from a folder.
        query_prefix, passage_prefix: E5 models want "query: " and "passage: "; most others want nothing.

    Raises:
        MissingExtraError: without the extra.
        ConfigError: if the corpus is empty or ids repeat, or the encoder returns something else than one finite vector
            per text.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        encode: Encoder,
        query_prefix: str = "query: ",
        passage_prefix: str = "passage: ",
        batch_size: int = 256,
    ) -> None:
        check_corpus(passages, "dense")
        check_whole("dense, batch_size", batch_size, 1)
        if not callable(encode):
            raise ConfigError(f"encoder: got {encode!r}, expected a callable (texts) -> vectors; see sentence_encoder")
        self._passages = passages
        self._encode = encode
        self.query_prefix = query_prefix
        texts = [f"{passage_prefix}{passage.title}\n{passage.text}" for passage in passages]
        vectors = np.concatenate(
            [unit_vectors(encode, texts[start : start + batch_size]) for start in range(0, len(texts), batch_size)]
        )
        self._index = _faiss().IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    @property
    def passages(self) -> Sequence[Passage]:
        return self._passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`; never fails, and always finds `k` passages, since every passage has some
        similarity.
        """
        if not queries:
            return []
        vectors = unit_vectors(self._encode, [self.query_prefix + query for query in queries])
        scores, rows = self._index.search(vectors, min(k, len(self._passages)))
        return [
            [self._hit(int(row), float(score)) for row, score in zip(*pair, strict=True)]
            for pair in zip(rows, scores, strict=True)
        ]

    def _hit(self, row: int, score: float) -> Passage:
        passage = self._passages[row]
        return Passage(passage.id, passage.title, passage.text, score)


def unit_vectors(encode: Encoder, texts: list[str]) -> NDArray[np.float32]:
    """Encoded texts at length 1.

    Raises:
        ConfigError: if the encoder returns something else than one finite vector per text.
    """
    # Tokenizers refuse lone surrogates.
    vectors = np.ascontiguousarray(
        encode([text.encode("utf-8", "replace").decode("utf-8") for text in texts]), dtype=np.float32
    )
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"encoder: got an array of shape {vectors.shape} for {len(texts)} texts, expected one finite vector per"
            " text"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)


def sentence_encoder(folder: str | Path, device: str = "cpu") -> Encoder:
    """The sentence-transformers model in a local folder.

    Raises:
        MissingExtraError: without the extra.
        ConfigError: if the folder does not exist; nothing is downloaded.
    """
    if not Path(folder).is_dir():
        raise ConfigError(
            f"encoder: got {str(folder)!r}, expected a folder with a sentence-transformers model; download it first"
        )
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(
            "retriever 'dense': sentence-transformers is missing; install it with: pip install 'a2tgpo[dense]'"
        ) from error
    model = SentenceTransformer(str(folder), device=device)

    def encode(texts: list[str]) -> NDArray[np.float32]:
        return np.asarray(model.encode(texts, convert_to_numpy=True, show_progress_bar=False), dtype=np.float32)

    return encode


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            "retriever 'dense': faiss is missing; install it with: pip install 'a2tgpo[dense]'"
        ) from error
    return faiss
