"""The public data sets that search agents are scored on: which split, how many questions, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FLASHRAG: Final = "RUC-NLPIR/FlashRAG_datasets on Hugging Face"


@dataclass(frozen=True, slots=True)
class PublicSet:
    """One of them."""

    id: str
    """Gymnasium id without namespace and version."""
    title: str
    """As tables of papers call it."""
    folder: str
    """Name below `$A2TGPO_DATA`."""
    split: str
    """That papers report."""
    questions: int
    """Of that split."""
    hops: str
    """`multi-hop` or `single-hop`: papers average over each kind."""
    source: str
    """Where its files come from; nothing is downloaded."""


def _flashrag(id: str, title: str, folder: str, split: str, questions: int, hops: str) -> PublicSet:
    file = "dev.jsonl" if split == "validation" else f"{split}.jsonl"
    return PublicSet(id, title, folder, split, questions, hops, f"{folder}/{file} of {FLASHRAG}")


PUBLIC_SETS: Final[tuple[PublicSet, ...]] = (
    _flashrag("HotpotQA", "HotpotQA", "hotpotqa", "validation", 7405, "multi-hop"),
    _flashrag("TwoWikiMultihopQA", "2WikiMultihopQA", "2wikimultihopqa", "validation", 12576, "multi-hop"),
    _flashrag("MuSiQue", "MuSiQue", "musique", "validation", 2417, "multi-hop"),
    _flashrag("Bamboogle", "Bamboogle", "bamboogle", "test", 125, "multi-hop"),
    _flashrag("NaturalQuestions", "NQ", "nq", "test", 3610, "single-hop"),
    _flashrag("TriviaQA", "TriviaQA", "triviaqa", "test", 11313, "single-hop"),
    _flashrag("PopQA", "PopQA", "popqa", "test", 14267, "single-hop"),
)
"""The seven sets of Search-R1 and most papers after it."""

SUITES: Final[Mapping[str, tuple[PublicSet, ...]]] = {
    "search-qa": PUBLIC_SETS,
    "multi-hop": tuple(entry for entry in PUBLIC_SETS if entry.hops == "multi-hop"),
    "single-hop": tuple(entry for entry in PUBLIC_SETS if entry.hops == "single-hop"),
}
"""Sets that are evaluated together, by one word."""


def public_set(name: str) -> PublicSet | None:
    """The set of that id or folder; `None` for any other name."""
    return next((entry for entry in PUBLIC_SETS if name in (entry.id, entry.folder)), None)
