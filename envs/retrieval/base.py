"""What a search engine must do for the environment."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from a2tgpo.envs.records import Passage
from a2tgpo.errors import ConfigError


@runtime_checkable
class Retriever(Protocol):
    """Anything with a batched `search`."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The best at most `k` passages for each query, best first, with scores; fewer, possibly none, where nothing
        matches.

        Raises:
            RetrievalError: if the engine failed; the whole call counts as failed.
        """
        ...


Retrievers = Retriever | Mapping[str, Retriever]
"""One retriever for all questions, or one per `Question.corpus`."""


@runtime_checkable
class LocalRetriever(Retriever, Protocol):
    """A retriever that holds its corpus."""

    @property
    def passages(self) -> Sequence[Passage]: ...


def check_corpus(passages: Sequence[Passage], name: str) -> None:
    """Refuse a corpus that cannot be searched.

    Raises:
        ConfigError: if it is empty or two passages share an id.
    """
    if not passages:
        raise ConfigError(
            f"{name}: got an empty corpus, expected at least one passage; check the corpus file or build one with"
            " `a2tgpo data corpus`"
        )
    seen: set[str] = set()
    for passage in passages:
        if passage.id in seen:
            raise ConfigError(
                f"{name}: got passage id {passage.id!r} twice, expected unique ids; titles are not ids, many texts"
                " share one"
            )
        seen.add(passage.id)
