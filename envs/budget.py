"""How much of what was retrieved is shown: whole passages first, each cut at a word, never a cut tag."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from a2tgpo.checks import check_whole
from a2tgpo.envs.records import Passage
from a2tgpo.errors import ConfigError

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class ObservationBudget:
    """Limits on one observation, in the unit that `length` counts: characters by default, tokens with a tokenizer's
    counter.

    Raises:
        ConfigError: if a limit is not positive.
    """

    per_passage: int = 2_000
    """Longest text of one passage; a longer one is cut at a word and ends in "…"."""
    total: int = 6_000
    """Longest sum of titles and texts; the last passage that starts within it is cut, later ones are not shown."""
    length: Callable[[str], int] = len

    def __post_init__(self) -> None:
        for name in ("per_passage", "total"):
            check_whole(f"observation budget, {name}", getattr(self, name), 1)
        if not callable(self.length):
            raise ConfigError(f"observation budget, length: got {self.length!r}, expected a callable (text) -> number")

    def fit(self, passages: Sequence[Passage]) -> list[Passage]:
        """The passages to show, in order; texts are shortened, titles only when longer than `per_passage`."""
        shown: list[Passage] = []
        left = self.total
        for passage in passages:
            title = self._cut(passage.title, min(self.per_passage, left))
            left -= self.length(title)
            text = self._cut(passage.text, min(self.per_passage, left))
            left -= self.length(text)
            if not text and passage.text:
                break
            shown.append(
                passage if (title, text) == (passage.title, passage.text) else replace(passage, title=title, text=text)
            )
        return shown

    def _cut(self, text: str, limit: int) -> str:
        """The longest run of whole words that fits together with an ellipsis; "" if there is none."""
        if limit <= 0:
            return ""
        if self.length(text) <= limit:
            return text
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if self.length(text[:middle] + ELLIPSIS) <= limit:
                low = middle
            else:
                high = middle - 1
        at_word = low if low == len(text) or text[low].isspace() else max(text.rfind(" ", 0, low), 0)
        kept = text[: at_word or low].rstrip()
        return kept + ELLIPSIS if kept else ""
