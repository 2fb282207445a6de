"""JSON files: one object per line, or one value with all rows in it."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from a2tgpo.envs.data.rows import CHUNK, BadRow, Row, decoded, iter_lines, object_row, open_text, parse_json
from a2tgpo.errors import DataError

_LISTS = ("Data", "data", "questions", "examples", "rows", "passages", "documents")
"""Fields under which a single object keeps its rows."""
_COLUMNS = frozenset({"_id", "answer", "answers", "context", "contents", "id", "query", "question", "text", "title"})
"""Names of which an object of columns has at least one."""
_BLANKS = " \t\r\n,"


def iter_json_lines(path: Path, max_row_bytes: int) -> Iterator[Row | BadRow]:
    """The rows of a file with one JSON object per line, whatever its name."""
    with open_text(path) as file:
        for number, data in iter_lines(path, file, max_row_bytes):
            if isinstance(data, BadRow):
                yield data
            elif data.strip():
                yield _line(path, number, data)


def _line(path: Path, number: int, data: bytes) -> Row | BadRow:
    text = decoded(path, number, data)
    if isinstance(text, BadRow):
        return text
    try:
        value = parse_json(text)
    except ValueError as error:
        return BadRow(str(path), number, f"not JSON: {error}")
    return object_row(path, number, value)


def iter_json(path: Path, max_row_bytes: int) -> Iterator[Row | BadRow]:
    """The rows of a JSON value: an array of objects, read piece by piece; or one object, which holds columns of equal
    length, a list of rows (TriviaQA's `{"Data": […]}`), SQuAD's articles, rows by id, or passages by title, each a text
    or a list of sentences.

    Raises:
        DataError: for any other value.
    """
    with open_text(path) as file, io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape") as text:
        head = text.read(CHUNK)
        if head.lstrip().startswith("["):
            yield from _array(path, text, head, max_row_bytes)
            return
        try:
            value = parse_json(head + text.read())
        except ValueError as error:
            raise DataError(
                f"{path}: not JSON: {error}; a file with one object per line must be named .jsonl"
            ) from error
    for number, row in enumerate(_rows_of(path, value), start=1):
        yield object_row(path, number, row)


def _rows_of(path: Path, value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        rows = next((value[name] for name in _LISTS if _is_rows(value.get(name))), None)
        if rows is not None:
            return (part for row in rows for part in _questions_of(row))
        if value and _COLUMNS.isdisjoint(value) and all(map(_is_text, value.values())):
            return ({"title": title, "text": text} for title, text in value.items())
        if value and all(isinstance(row, Mapping) and not _COLUMNS.isdisjoint(row) for row in value.values()):
            return ({"id": key, **row} for key, row in value.items())
        if value and all(isinstance(column, list | Mapping) for column in value.values()):
            return _of_columns(path, value)
    raise DataError(f"{path}: got a JSON {type(value).__name__}, expected an array of objects, or an object of columns")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _questions_of(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A row, or the questions below one of SQuAD's articles, each with its paragraph."""
    paragraphs = row.get("paragraphs") or []
    if not _is_rows(paragraphs) or not all("qas" in paragraph for paragraph in paragraphs):
        yield row
        return
    for paragraph in paragraphs:
        for question in paragraph["qas"]:
            yield {"title": row.get("title", ""), "context": paragraph.get("context"), **question}


def _of_columns(path: Path, columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    values = {
        name: list(column.values()) if isinstance(column, Mapping) else column for name, column in columns.items()
    }
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        shown = dict(list(lengths.items())[:10])
        raise DataError(f"{path}: got columns of different lengths {shown}, expected one value per row in each")
    return (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))


def _array(path: Path, text: io.TextIOWrapper, buffer: str, max_row_bytes: int) -> Iterator[Row | BadRow]:
    decoder = json.JSONDecoder()
    buffer = buffer.lstrip()[1:]
    number = 0
    while True:
        buffer = buffer.lstrip(_BLANKS)
        if buffer.startswith("]"):
            return
        number += 1
        value, end, problem = _next_value(decoder, buffer)
        while problem and len(buffer) <= max_row_bytes and (more := text.read(max(CHUNK, len(buffer)))):
            buffer = buffer.lstrip(_BLANKS) + more
            if buffer.startswith("]"):
                return
            value, end, problem = _next_value(decoder, buffer)
        if problem:
            yield BadRow(
                str(path),
                number,
                f"not JSON, or longer than {max_row_bytes} bytes: {problem}; the rest of the file cannot be read",
            )
            return
        yield object_row(path, number, value)
        buffer = buffer[end:]


def _next_value(decoder: json.JSONDecoder, buffer: str) -> tuple[Any, int, str]:
    try:
        value, end = decoder.raw_decode(buffer)
    except (ValueError, RecursionError) as error:
        return None, 0, str(error)
    return value, end, ""
