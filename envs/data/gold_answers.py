"""The gold answers of a raw row, in every form found in the wild."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from a2tgpo.envs.data.fields import RawRow, ShapeError, plain_text, structured
from a2tgpo.envs.data.rows import encodable

ANSWER_SEPARATOR = "<|answer_split|>"
ANSWER_FIELDS = (
    "golden_answers",
    "answers",
    "possible_answers",
    "gold_answers",
    "answers_objects",
    "answer",
    "gold_answer",
    "output",
    "solution",
    "ground_truth",
)
"""Fields of a row that may hold its answers, in order."""
_ALIAS_FIELDS = ("answer_aliases", "aliases", "answer_alias")
_TEXT_FIELDS = ("target", "text", "value", "answer", "spans", "number")
_DATE_FIELDS = ("day", "month", "year")


def read_gold_answers(row: RawRow, field: str = "") -> tuple[tuple[str, ...], str]:
    """(all gold answers of a row, the field they are from).

    A list beats a text: some files hold both, and the text is the list joined with commas.

    Args:
        field: the field that the user named; empty = by the known names.

    Raises:
        ShapeError: if there is none, or only blank ones.
    """
    name, chosen = (field, row.named(field, "answer_field")) if field else _chosen(row)
    answers = answer_texts(chosen)
    for alias_field in _ALIAS_FIELDS:
        more = row.get(alias_field)
        if more is not None:
            answers += tuple(alias for alias in answer_texts(more) if alias not in answers)
    if not any(answer.strip() for answer in answers):
        raise ShapeError(f"empty gold answers {list(answers)!r} in {name}")
    if not all(map(encodable, answers)):  # an escape within a list that was written as text
        raise ShapeError(f"half of a surrogate pair in {name}, which is not a character")
    return answers, name


def _chosen(row: RawRow) -> tuple[str, Any]:
    given = list(row.first(ANSWER_FIELDS))
    extra = row.mapping("extra_info")
    nested = {
        "extra_info.answer": extra.get("answer"),
        "extra_info.answers": extra.get("answers"),
        "reward_model.ground_truth": row.mapping("reward_model").get("ground_truth"),
    }
    given += [(name, value) for name, value in nested.items() if value is not None]
    if not given and row.is_empty(ANSWER_FIELDS):
        raise ShapeError(f"empty gold answers; {row.found()}")
    if not given:
        raise ShapeError(f"no answer field ({', '.join((*ANSWER_FIELDS, *nested))}); {row.found()}; name it")
    lists = [(name, value) for name, value in given if not isinstance(structured(value, name), str)]
    return (lists or given)[0]


def answer_texts(value: Any, within: bool = False) -> tuple[str, ...]:
    """The answers that a value holds, in order; missing ones (null, NaN) are left out.

    Args:
        within: is it an entry of a list?

    Raises:
        ShapeError: for a value that is not an answer.
    """
    match value:
        case None:
            return ()
        case bool():
            return ("yes" if value else "no",)
        case float() if math.isnan(value):
            return ()
        case float() if math.isinf(value):
            raise ShapeError("answer is an infinite number, expected text")
        case int() | float():
            return (plain_text(value),)
        case str():
            return _written(value, within)
        case Mapping():
            return _of_object(value)
        case Sequence() if not isinstance(value, bytes | bytearray):
            return tuple(text for entry in value for text in answer_texts(entry, within=True))
        case _ if hasattr(value, "tolist"):  # numpy's
            return answer_texts(value.tolist(), within)
        case _:
            raise ShapeError(
                f"answer of type {type(value).__name__}, expected text, a list of texts, or an object with"
                " target/text/value"
            )


def _written(text: str, within: bool) -> tuple[str, ...]:
    if ANSWER_SEPARATOR in text:
        return tuple(text.split(ANSWER_SEPARATOR))
    value = structured(text, "answer")
    if isinstance(value, str):
        return (text,)
    if within and isinstance(value, list) and not any(isinstance(entry, str) for entry in value):
        return (text,)  # "[0, 1]" among other answers
    return answer_texts(value, within=True)


def _of_object(value: Mapping[str, Any]) -> tuple[str, ...]:
    fields = {str(name).lower(): entry for name, entry in value.items()}
    for name in _TEXT_FIELDS:
        if fields.get(name) not in (None, "", []):
            first = answer_texts(fields[name])
            return first + tuple(alias for alias in answer_texts(fields.get("aliases")) if alias not in first)
    if any(name in fields for name in _TEXT_FIELDS):
        date = fields.get("date")  # DROP's and IRCoT's objects have a number, a date and spans, two of them empty
        parts = [str(date.get(part) or "") for part in _DATE_FIELDS] if isinstance(date, Mapping) else []
        return (" ".join(filter(None, parts)),) if any(parts) else ()
    if "provenance" in fields:  # KILT lists evidence without an answer beside the answers
        return ()
    raise ShapeError(f"answer object with fields {sorted(map(str, value))}, expected one of target, text, value")
