"""The two records that everything in `envs` passes around."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from a2tgpo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text."""

    id: str
    """Unique within its corpus; never the title, since many texts share one."""
    title: str
    text: str
    score: float = float("nan")
    """Retrieval score of this passage for the query that found it; NaN outside a search result."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question with everything that is known about it; gold answers are never shown to the agent.

    Raises:
        ConfigError: if a text is none, or `answers` is one text instead of a tuple of them.
    """

    id: str
    """Unique over all data sets that are used together."""
    text: str
    answers: tuple[str, ...]
    """Gold answers: every alias, in file order."""
    corpus: str = ""
    """Key of the corpus that the question is asked over, where an environment holds several; empty = the only one."""
    supporting: tuple[str, ...] = ()
    """Ids of the passages that together hold the answer, where known."""
    hops: int | None = None
    type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("id", "text", "corpus"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"Question.{name}: got {getattr(self, name)!r}, expected a text")
        for name in ("answers", "supporting"):
            object.__setattr__(self, name, _texts(f"Question.{name}", getattr(self, name)))


def _texts(name: str, value: object) -> tuple[str, ...]:
    """Several texts as a tuple; one text alone would be taken for its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{name}: got {value!r}, expected a tuple of texts, for example ({str(value)!r},)")
    texts = tuple(value)
    wrong = next((text for text in texts if not isinstance(text, str)), "")
    if not isinstance(wrong, str):
        raise ConfigError(f"{name}: got {wrong!r} in {value!r}, expected a tuple of texts")
    return texts
