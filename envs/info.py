"""What `info` holds after every reset and step."""

from typing import Any

import numpy as np

Info = dict[str, Any]


class _Missing(np.float64):
    """NaN that equals itself: two infos of the same step must compare equal, as Gymnasium's checker demands."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Missing) or bool(np.float64.__eq__(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_Missing)


MISSING: float = _Missing("nan")
"""A float that was never measured; `math.isnan` is true of it."""

INFO_TYPES: dict[str, type] = {
    "question_id": str,
    "turn": int,
    "action": str,
    "query": str,
    "answer": str,
    "passage_ids": tuple,
    "retrieval_failed": bool,
    "retrieval_error": str,
    "retrieval_failures": int,
    "answer_logprob": float,
    "information_gain": float,
    "outcome": float,
    "shaping": float,
    "em": float,
    "f1": float,
    "format_ok": bool,
    "searches": int,
    "invalid_actions": int,
    "stop": str,
    "state_key": str,
    "gold_answers": tuple,
}
"""Keys and types of `info`, in order. `turn` counts finished turns (0 after reset); `state_key` identifies the state
that the next turn acts on (GiGPO's
anchor): the observation that comes with this info. `gold_answers` are for trainers; no observation ever holds them.
"""
