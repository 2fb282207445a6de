"""The two records that everything in `envs` passes around."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """One question with everything that is known about it; gold answers are never shown to the agent."""

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
