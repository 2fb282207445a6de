"""What is known after every reset and step: a typed record within the package, a dictionary for Gymnasium."""

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import numpy as np

from a2tgpo.episode import ActionKind, StopReason

Info = dict[str, Any]
"""`StepInfo.as_dict()`."""


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What is known after a reset or a step. Always complete; scores are 0.0 until the episode ends, and stay 0.0 if it
    ends unanswered.
    """

    question_id: str
    turn: int
    """Finished turns; 0 after a reset."""
    action: ActionKind | None
    """What the turn did; `None` after a reset."""
    query: str
    """Of a search, else empty."""
    answer: str
    """Of an answer, else empty."""
    passage_ids: tuple[str, ...]
    """Of the passages shown, best first."""
    retrieval_failed: bool
    """Did this turn's search fail?"""
    retrieval_error: str
    retrieval_failures: int
    """Searches of the episode that failed."""
    answer_logprob: float | None
    """The scorer's value of the gold answer by now; `None` without a scorer."""
    information_gain: float | None
    """Its change by this turn; `None` for a turn that did not search, which is not the same as 0."""
    score: float
    """The answer against the gold answers, without shaping."""
    shaping: float
    """What the format costs: 0 or below."""
    outcome: float
    """Score and shaping together: the reward of the last step."""
    em: float
    f1: float
    format_ok: bool
    searches: int
    """Searches that reached the retriever and came back."""
    invalid_actions: int
    stop: StopReason | None
    """Why the episode ended; `None` while it runs."""
    state_key: str
    """Identifies the state that the next turn acts on (GiGPO's anchor): the observation that comes with this info."""
    gold_answers: tuple[str, ...]
    """For trainers; no observation ever holds them."""

    def as_dict(self) -> Info:
        """The same keys with plain values: names for kinds ("" for `None`), NaN for numbers that were not measured."""
        return {name: _plain(getattr(self, name), kind) for name, kind in INFO_TYPES.items()}


class _NotMeasured(np.float64):
    """NaN that equals itself: two infos of the same step must compare equal, as Gymnasium's checker demands."""

    def __eq__(self, other: object) -> bool:
        return True if isinstance(other, _NotMeasured) else np.float64.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_NotMeasured)


NOT_MEASURED: float = _NotMeasured("nan")
"""A float that was never measured; `math.isnan` is true of it."""


def _plain(value: Any, kind: type) -> Any:
    if value is None:
        return NOT_MEASURED if kind is float else ""
    return str(value) if kind is str else value


def _kind(hint: Any) -> type:
    """The type of a field's plain value."""
    kinds: dict[Any, type] = {int: int, float: float, bool: bool, float | None: float, tuple[str, ...]: tuple}
    return kinds.get(hint, str)


INFO_TYPES: dict[str, type] = {entry.name: _kind(get_type_hints(StepInfo)[entry.name]) for entry in fields(StepInfo)}
"""Keys and types of the dictionary, in order."""
