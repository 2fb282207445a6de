"""One raw row to one question with its passages, for every shape found in the wild.

The shapes are told apart by their fields, row by row; no reader has to be chosen. Gold answers keep every alias in file
order, passages are keyed by a hash of their content (never by title: in MuSiQue one title has thirty texts), and
supporting passages are named by those keys.
"""

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from a2tgpo.envs.data.rows import parse_json
from a2tgpo.envs.records import Passage, Question

ANSWER_SEPARATOR = "<|answer_split|>"
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
_TEXT_FIELDS = ("question", "Question", "query")
_ID_FIELDS = ("id", "_id", "question_id", "QuestionId", "qid")
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


class ShapeError(ValueError):
    """A row that is no usable question; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the passages that came with it."""

    question: Question
    passages: tuple[Passage, ...]


def passage_id(title: str, text: str) -> str:
    """Key of a passage: equal exactly for equal title and text."""
    return hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]


def to_item(row: Mapping[str, Any], fallback_id: str) -> Item:
    """Read a row.

    Args:
        fallback_id: id of a row without one, unique in its file; its part before ":" also qualifies ids like "test_0".

    Raises:
        ShapeError: if the row has no question or no answer, or a field has a type that means nothing.
    """
    if row.get("answerable") is False:
        raise ShapeError("marked as unanswerable (answerable=false); such rows have no gold answer")
    extra = _mapping(row, "extra_info")
    dataset = _dataset(row)
    text = _question_text(row, extra)
    answers = read_answers(row, extra)
    paragraphs = _paragraphs(row)
    passages = tuple(Passage(passage_id(title, content), title, content) for title, content, _ in paragraphs)
    supporting, missing = _supporting(row, passages, [flag for _, _, flag in paragraphs])
    metadata: dict[str, Any] = {name: row[name] for name in _METADATA_FIELDS if row.get(name) is not None}
    if dataset:
        metadata["dataset"] = dataset
    if missing:
        metadata["supporting_not_in_contexts"] = missing
    question_id = _question_id(row, extra, dataset, fallback_id)
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
    return Item(question, passages)


def read_answers(row: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[str, ...]:
    """All gold answers of a row. A list field beats a joined string (some files hold both, and the string is wrong).

    Raises:
        ShapeError: if there is none, or only blank ones.
    """
    ground_truth = _mapping(row, "reward_model").get("ground_truth")
    candidates = [row.get(name) for name in ("golden_answers", "answers", "possible_answers", "answer", "Answer")]
    candidates += [extra.get("answer"), extra.get("answers"), ground_truth]
    given = [candidate for candidate in candidates if candidate is not None]
    if not given:
        raise ShapeError(
            "no answer field (golden_answers, answers, answer, possible_answers, reward_model.ground_truth)"
        )
    chosen = next((candidate for candidate in given if not isinstance(candidate, str)), given[0])
    answers = _answer_texts(chosen)
    for name in ("answer_aliases", "aliases", "answer_alias"):
        if row.get(name):
            answers += tuple(alias for alias in _answer_texts(row[name]) if alias not in answers)
    if not any(answer.strip() for answer in answers):
        raise ShapeError(f"empty gold answers {list(answers)!r}")
    return answers


def _answer_texts(value: Any) -> tuple[str, ...]:
    match value:
        case bool():
            return ("yes" if value else "no",)
        case int() | float():
            return (str(value),)
        case str():
            return _split_answers(value)
        case Mapping():
            for name in ("target", "text", "Value", "value", "answer"):
                if name in value:
                    aliases = value.get("Aliases", value.get("aliases")) or ()
                    first = _answer_texts(value[name])
                    return first + tuple(alias for alias in _answer_texts(list(aliases)) if alias not in first)
            raise ShapeError(
                f"answer object with fields {sorted(map(str, value))}, expected one of target, text, value"
            )
        case Sequence():
            return tuple(text for entry in value if entry is not None for text in _answer_texts(entry))
        case _:
            raise ShapeError(
                f"answer of type {type(value).__name__}, expected text, a list of texts, or an object with"
                " target/text/value"
            )


def _split_answers(text: str) -> tuple[str, ...]:
    if ANSWER_SEPARATOR in text:
        return tuple(text.split(ANSWER_SEPARATOR))
    # PopQA's table holds a JSON list; other gold answers may merely look like one
    if text.startswith("[") and text.endswith("]"):
        try:
            values = parse_json(text)
        except ValueError:
            return (text,)
        if isinstance(values, list) and all(isinstance(entry, str) for entry in values):
            return tuple(values)
    return (text,)


def _question_text(row: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    found = next((row[name] for name in _TEXT_FIELDS if isinstance(row.get(name), str)), None)
    found = found if found is not None else extra.get("question")
    if found is None and isinstance(row.get("prompt"), list | tuple):
        users = [
            turn.get("content") for turn in row["prompt"] if isinstance(turn, Mapping) and turn.get("role") == "user"
        ]
        found = str(users[-1]).rpartition("Question:")[2] if users else None
    if not isinstance(found, str):
        raise ShapeError("no question field (question, query, extra_info.question, prompt)")
    text = " ".join(found.split())
    if len(text) > 2 and text[0] == text[-1] == '"' and '""' in text[1:-1]:  # a CSV cell that was never unquoted
        text = text[1:-1].replace('""', '"').strip()
    if not text:
        raise ShapeError("empty question")
    return text


def _question_id(row: Mapping[str, Any], extra: Mapping[str, Any], dataset: str, fallback_id: str) -> str:
    found = next((str(row[name]) for name in _ID_FIELDS if row.get(name) not in (None, "")), None)
    source = dataset or fallback_id.partition(":")[0]
    if found is None and extra.get("index") is not None:
        found = "_".join(str(part) for part in (extra.get("split"), extra["index"]) if part is not None)
    if found is None:
        return fallback_id
    return f"{source}_{found}" if _GENERIC_ID.fullmatch(found) else found


def _dataset(row: Mapping[str, Any]) -> str:
    raw = row.get("dataset") or row.get("data_source") or ""
    name = str(raw).rpartition("/")[2]
    return DATASET_NAMES.get(re.sub(r"[\W_]", "", name.lower()), name)


def _hops(row: Mapping[str, Any], question_id: str) -> int | None:
    hops = row.get("hops")
    if isinstance(hops, int) and not isinstance(hops, bool):
        return hops
    if isinstance(row.get("question_decomposition"), list):
        return len(row["question_decomposition"])
    match = re.match(r"(\d)hop\d*__", question_id)
    return int(match[1]) if match else None


def _paragraphs(row: Mapping[str, Any]) -> list[tuple[str, str, bool | None]]:
    """(title, text, is it supporting: True, False, or None = not said) of every paragraph, entities unescaped."""
    metadata = _mapping(row, "metadata")
    raw = next(
        (
            source[name]
            for source in (row, metadata)
            for name in ("contexts", "paragraphs", "context")
            if source.get(name)
        ),
        None,
    )
    if isinstance(raw, str) and raw.lstrip().startswith(("[", "{")):
        raw = _parsed(raw, "context")
    if raw is None or isinstance(raw, str):
        return []
    if isinstance(raw, Mapping):
        texts = raw.get("sentences", raw.get("content", raw.get("text")))
        if not isinstance(raw.get("title"), list) or not isinstance(texts, list) or len(texts) != len(raw["title"]):
            raise ShapeError(
                f"context object with fields {sorted(map(str, raw))}, expected the lists title and sentences of equal"
                " length"
            )
        raw = list(zip(raw["title"], texts, strict=True))
    return [_paragraph(entry) for entry in raw]


def _paragraph(entry: Any) -> tuple[str, str, bool | None]:
    match entry:
        case {"title": title, "paragraph_text": text} | {"title": title, "text": text}:
            flag = entry.get("is_supporting")
        case [title, text]:
            flag = None
        case _:
            raise ShapeError(
                f"context entry of type {type(entry).__name__}, expected [title, sentences] or an object with title and"
                " text"
            )
    # HotpotQA's sentences carry their own leading space, 2Wiki's do not.
    content = text if isinstance(text, str) else " ".join(" ".join(map(str, text)).split())
    return html.unescape(str(title)).strip(), html.unescape(content).strip(), flag if isinstance(flag, bool) else None


def _supporting(
    row: Mapping[str, Any], passages: Sequence[Passage], flags: Sequence[bool | None]
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


def _supporting_titles(row: Mapping[str, Any]) -> list[str]:
    raw = (
        row.get("supporting_facts") or _mapping(row, "metadata").get("supporting_facts") or row.get("supporting") or ()
    )
    if isinstance(raw, str):
        raw = _parsed(raw, "supporting_facts")
    if isinstance(raw, Mapping):
        raw = raw.get("title") or ()
    titles = (
        fact if isinstance(fact, str) else fact[0]
        for fact in raw
        if isinstance(fact, str) or (isinstance(fact, list | tuple) and fact)
    )
    return list(dict.fromkeys(html.unescape(str(title)).strip() for title in titles))


def _parsed(text: str, name: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ShapeError(f"{name}: looks like JSON but is not: {error}") from error


def _mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}
