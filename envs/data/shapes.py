"""One raw row to one question with its passages, for every shape found in the wild.

The shapes are told apart by their fields, row by row; no reader has to be chosen, and fields of other names can be
named. Gold answers keep every alias in file order, passages are keyed by a hash of their content (never by title: in
MuSiQue one title has thirty texts), and supporting passages are named by those keys.
"""

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from a2tgpo.envs.data.fields import KNOWN_NAMES, FieldNames, RawRow, ShapeError, plain_text, structured
from a2tgpo.envs.data.gold_answers import read_gold_answers
from a2tgpo.envs.data.paragraphs import read_paragraphs
from a2tgpo.envs.records import Passage, Question

DATASET_NAMES: dict[str, str] = {
    "hotpotqa": "hotpotqa",
    "hotpot": "hotpotqa",
    "2wikimultihopqa": "2wikimultihopqa",
    "2wikimultihop": "2wikimultihopqa",
    "2wiki": "2wikimultihopqa",
    "musique": "musique",
    "bamboogle": "bamboogle",
    "nq": "nq",
    "naturalquestions": "nq",
    "nqopen": "nq",
    "triviaqa": "triviaqa",
    "tq": "triviaqa",
    "popqa": "popqa",
}
"""Names that files use for the seven sets, lower case and without punctuation, to the one used here."""

_GENERIC_ID = re.compile(r"(?:(?:train|dev|validation|test|val)[_-]?)?\d+")
QUESTION_FIELDS = ("question", "query", "problem", "question_text", "input")
"""Fields of a row that may hold its question, in order; `prompt` comes last, since it may hold more."""
ID_FIELDS = ("id", "_id", "question_id", "questionid", "qid", "query_id")
_METADATA_FIELDS = (
    "level",
    "source",
    "split",
    "evidences",
    "decomposition",
    "question_decomposition",
    "answer_in_contexts",
    "setting",
    "answer_id",
)


class Columns(NamedTuple):
    """Which fields of a row were read, as the row spells them; empty = none."""

    question: str
    answers: str
    paragraphs: str
    id: str
    found: tuple[str, ...]
    """All fields of the row."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the passages that came with it."""

    question: Question
    passages: tuple[Passage, ...]
    columns: Columns


def passage_id(title: str, text: str) -> str:
    """Key of a passage: equal exactly for equal title and text."""
    return hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]


def to_item(data: Mapping[str, Any], fallback_id: str, names: FieldNames = KNOWN_NAMES) -> Item:
    """Read a row.

    Args:
        fallback_id: id of a row without one, unique in its file; its part before ":" also qualifies ids like "test_0".
        names: fields that the user named.

    Raises:
        ShapeError: if the row has no question or no answer, or a field has a type that means nothing.
    """
    row = RawRow(data)
    if row.get("answerable") is False or row.get("is_impossible") is True:
        raise ShapeError("marked as unanswerable; such rows have no gold answer")
    dataset = _dataset(row)
    text, question_field = _question_text(row, names.question)
    answers, answer_field = read_gold_answers(row, names.answer)
    paragraphs, context_field = read_paragraphs(row, names.context)
    passages = tuple(Passage(passage_id(title, content), title, content) for title, content, _ in paragraphs)
    supporting, missing = _supporting(row, passages, [paragraph.supporting for paragraph in paragraphs])
    metadata: dict[str, Any] = {name: value for name in _METADATA_FIELDS if (value := row.get(name)) is not None}
    if dataset:
        metadata["dataset"] = dataset
    if missing:
        metadata["supporting_not_in_contexts"] = missing
    question_id, id_field = _question_id(row, dataset, fallback_id)
    kind = row.get("type")
    question = Question(
        question_id,
        text,
        answers,
        "",
        supporting,
        _hops(row, question_id),
        kind if isinstance(kind, str) else None,
        metadata,
    )
    return Item(question, passages, _columns(question_field, answer_field, context_field, id_field, row.columns))


@lru_cache(maxsize=256)
def _columns(question: str, answers: str, paragraphs: str, id: str, found: tuple[str, ...]) -> Columns:
    """One object for all rows alike."""
    return Columns(question, answers, paragraphs, id, found)


def _question_text(row: RawRow, field: str) -> tuple[str, str]:
    """(the question, the field it is from)."""
    name, found = (field, row.named(field, "question_field")) if field else _question_candidate(row)
    text = " ".join(_asked(structured(found, name), name.lower().endswith("prompt")).split())
    if len(text) > 2 and text[0] == text[-1] == '"' and '""' in text[1:-1]:  # a CSV cell that was never unquoted
        text = text[1:-1].replace('""', '"').strip()
    if not text:
        raise ShapeError(f"empty question in {name}")
    return text, name


def _question_candidate(row: RawRow) -> tuple[str, Any]:
    found = next(((name, value) for name, value in row.first(QUESTION_FIELDS) if isinstance(value, str)), None)
    if found is not None:
        return found
    nested = row.mapping("extra_info").get("question")
    if isinstance(nested, str):
        return "extra_info.question", nested
    prompt = row.structured("prompt")
    if isinstance(prompt, str | list) and prompt:
        return row.spelled("prompt"), prompt
    names = ", ".join((*QUESTION_FIELDS, "extra_info.question", "prompt"))
    if row.is_empty(QUESTION_FIELDS):
        raise ShapeError(f"empty question; {row.found()}")
    raise ShapeError(f"no question field ({names}); {row.found()}; name it")


def _asked(value: Any, is_prompt: bool) -> str:
    """The question in a text or in the last message of a user; in a prompt, what follows "Question:" if it says so."""
    if isinstance(value, list):
        users = [turn.get("content") for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"]
        value, is_prompt = _content(users[-1]) if users else None, True
    if not isinstance(value, str):
        raise ShapeError(f"question of type {type(value).__name__}, expected text or messages with one of a user")
    return value.rpartition("Question:")[2] if is_prompt else value


def _content(content: Any) -> Any:
    """The text of a message, which may be given in parts."""
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        return " ".join(str(part.get("text", "")) for part in content)
    return content


def _question_id(row: RawRow, dataset: str, fallback_id: str) -> tuple[str, str]:
    """(id, the field it is from)."""
    field, found = next(((name, plain_text(value)) for name, value in row.first(ID_FIELDS)), ("", ""))
    extra = row.mapping("extra_info")
    if not found and extra.get("index") is not None:
        field = "extra_info.index"
        found = "_".join(str(part) for part in (extra.get("split"), extra["index"]) if part is not None)
    if not found:
        return fallback_id, ""
    source = dataset or fallback_id.partition(":")[0]
    return (f"{source}_{found}" if _GENERIC_ID.fullmatch(found) else found), field


def _dataset(row: RawRow) -> str:
    raw = row.get("dataset") or row.get("data_source") or ""
    name = str(raw).rpartition("/")[2]
    return DATASET_NAMES.get(re.sub(r"[\W_]", "", name.lower()), name)


def _hops(row: RawRow, question_id: str) -> int | None:
    hops = row.get("hops")
    if isinstance(hops, int) and not isinstance(hops, bool):
        return hops
    if isinstance(hops, str | float) and plain_text(hops).isdigit():
        return int(plain_text(hops))
    parts = row.structured("question_decomposition")
    if isinstance(parts, list):
        return len(parts)
    match = re.match(r"(\d)hop\d*__", question_id)
    return int(match[1]) if match else None


def _supporting(
    row: RawRow, passages: Sequence[Passage], flags: Sequence[bool | None]
) -> tuple[tuple[str, ...], list[str]]:
    """(ids of the supporting passages, supporting titles that are not among the passages)."""
    titles = _supporting_titles(row)
    present = {passage.title for passage in passages}
    missing = [title for title in titles if title not in present]
    if any(flags):
        found = [passage.id for passage, flag in zip(passages, flags, strict=True) if flag]
    else:
        found = [passage.id for passage in passages if passage.title in titles]
    return tuple(dict.fromkeys(found)), missing


def _supporting_titles(row: RawRow) -> list[str]:
    raw = (
        row.structured("supporting_facts")
        or row.mapping("metadata").get("supporting_facts")
        or row.structured("supporting")
        or ()
    )
    if isinstance(raw, str):
        raise ShapeError("supporting_facts: looks like JSON but is not")
    if isinstance(raw, Mapping):
        raw = raw.get("title") or ()
    titles = (
        fact if isinstance(fact, str) else fact[0]
        for fact in raw
        if isinstance(fact, str) or (isinstance(fact, list | tuple) and fact)
    )
    return list(dict.fromkeys(html.unescape(str(title)).strip() for title in titles))
