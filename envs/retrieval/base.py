"""What a search engine must do for the environment."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from a2tgpo.envs.records import Passage
from a2tgpo.errors import ConfigError, RetrievalError

Found = list[Passage] | RetrievalError
"""What one query led to."""


@runtime_checkable
class Retriever(Protocol):
    """Anything with a batched `search`."""

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """The best at most `k` passages for each query, best first, with scores; fewer, possibly none, where nothing
        matches. In place of the passages of a query that failed alone stands its error.

        Raises:
            RetrievalError: if the engine failed; the whole call counts as failed.
        """
        ...


Retrievers = Retriever | Mapping[str, Retriever]
"""One retriever for all questions, or one per `Question.corpus`."""


def check_retriever(retriever: object) -> None:
    """Refuse what cannot search.

    Raises:
        ConfigError: for anything without a `search(queries, k)`.
    """
    if not callable(getattr(retriever, "search", None)) or isinstance(retriever, type):
        raise ConfigError(
            f"retriever: got {reprlib.repr(retriever)}, expected an object with search(queries, k), for example"
            " Bm25Retriever(passages), or one for each corpus by name"
        )


@runtime_checkable
class LocalRetriever(Retriever, Protocol):
    """A retriever that holds its corpus."""

    @property
    def passages(self) -> Sequence[Passage]: ...


def passages_of(found: Sequence[Found]) -> list[list[Passage]]:
    """The passages of every query.

    Raises:
        RetrievalError: that of the first query that failed.
    """
    for hits in found:
        if isinstance(hits, RetrievalError):
            raise hits
    return [hits for hits in found if not isinstance(hits, RetrievalError)]


def raise_if_all_failed(found: Sequence[Found]) -> Sequence[Found]:
    """The same results, if any query has one.

    Raises:
        RetrievalError: that of the first query, if all failed.
    """
    if found and isinstance(found[0], RetrievalError) and all(isinstance(hits, RetrievalError) for hits in found):
        raise found[0]
    return found


def check_passage(name: str, passage: object) -> None:
    """Refuse what is not a passage.

    Raises:
        ConfigError: for another type, or an id, title or text that is not a string.
    """
    parts = (passage.id, passage.title, passage.text) if isinstance(passage, Passage) else (None,)
    if not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{name}: got {reprlib.repr(passage)}, expected Passage(id, title, text) with three texts")


def check_corpus(passages: Sequence[Passage], name: str) -> None:
    """Refuse a corpus that cannot be searched.

    Raises:
        ConfigError: if it is empty, holds something else than passages, or two share an id.
    """
    given: object = passages
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise ConfigError(f"{name}: got {reprlib.repr(given)}, expected a list of Passage")
    if not passages:
        raise ConfigError(
            f"{name}: got an empty corpus, expected at least one passage; check the corpus file or build one with"
            " `a2tgpo data corpus`"
        )
    seen: set[str] = set()
    for passage in passages:
        check_passage(name, passage)
        if passage.id in seen:
            raise ConfigError(
                f"{name}: got passage id {passage.id!r} twice, expected unique ids; titles are not ids, many texts"
                " share one"
            )
        seen.add(passage.id)
