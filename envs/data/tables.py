"""CSV and TSV.

Quotation marks are where such files go wrong: a mark that opens a field and is never closed would swallow the rows
behind it. So a record is one line wherever one line can be read as a record. Only a field that is still open at the end
of its line takes in the following lines, and only if that makes a record; in a TSV file not where that line and the
next have the right number of fields anyway. A mark that is never closed is a character of the text in TSV and a bad row
in CSV.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from a2tgpo.envs.data.rows import BadRow, Row, decoded, iter_lines, open_text
from a2tgpo.errors import DataError

Headerless = Callable[[Sequence[str]], tuple[str, ...] | None]
"""Names of the columns if the first record of a table is data and not a header, else None."""

_MAX_OPEN_BYTES = 1 << 20
_MAX_OPEN_LINES = 1_000
"""A longer quoted field is taken for one that was never meant to be open."""


def always_header(fields: Sequence[str]) -> tuple[str, ...] | None:
    """Every table has a header."""
    return None


def iter_table(
    path: Path, kind: str, max_row_bytes: int, headerless: Headerless = always_header
) -> Iterator[Row | BadRow]:
    """The rows of a CSV (`kind` ".csv") or TSV file in order.

    Raises:
        DataError: if the header cannot be read or names a column twice.
    """
    csv.field_size_limit(max_row_bytes)
    with open_text(path) as file:
        lines = _Lines(path, iter_lines(path, file, max_row_bytes))
        first = lines.peek()
        if first is None:
            return
        if isinstance(first[1], BadRow):
            raise DataError(f"{first[1]}; the first line must name the columns")
        if "\r" in first[1]:
            raise DataError(f"{path}:1: lines end in carriage returns alone; save the file with newlines")
        reader = _Reader(lines, _delimiter(kind, first[1]))
        fields = reader.fields_of(first[1])
        names = headerless(fields)
        if names is None:
            names = tuple(name.strip() for name in fields)
            lines.take()
        twice = {name for name in names if name and names.count(name) > 1}
        if twice:
            raise DataError(f"{path}:1: got columns {sorted(twice)} twice, expected different names")
        for line, record in reader.records(len(names)):
            if isinstance(record, BadRow):
                yield record
            else:
                yield Row(str(path), line, dict(zip(names, record, strict=True)))


def _delimiter(kind: str, first_line: str) -> str:
    """Tab in TSV, also where such a file is named .csv (as DPR does); a semicolon where a header has no comma."""
    if kind == ".tsv" or "\t" in first_line:
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


class _Lines:
    """The lines of a file as text, with the next ones to look at."""

    def __init__(self, path: Path, lines: Iterator[tuple[int, bytes | BadRow]]) -> None:
        self.path = path
        self._lines = lines
        self._ahead: deque[tuple[int, str | BadRow]] = deque()

    def peek(self, distance: int = 0) -> tuple[int, str | BadRow] | None:
        """The line that many after the next, or None behind the end."""
        while len(self._ahead) <= distance:
            found = next(self._lines, None)
            if found is None:
                return None
            number, data = found
            self._ahead.append((number, data if isinstance(data, BadRow) else decoded(self.path, number, data)))
        return self._ahead[distance]

    def take(self, count: int = 1) -> None:
        """Leave that many lines behind."""
        for _ in range(count):
            self._ahead.popleft()


class _Reader:
    def __init__(self, lines: _Lines, delimiter: str) -> None:
        self._lines = lines
        self._delimiter = delimiter

    def records(self, width: int) -> Iterator[tuple[int, list[str] | BadRow]]:
        """(first line, fields) of every record; blank lines are none."""
        while (head := self._lines.peek()) is not None:
            number, text = head
            if text == "":
                self._lines.take()
                continue
            if isinstance(text, BadRow):
                self._lines.take()
                yield number, text
                continue
            record, length = self._record(text, width)
            self._lines.take(length)
            yield number, record if record is not None else self._bad(number, text, width)

    def fields_of(self, line: str) -> list[str]:
        """The fields of one line, as well as they can be told."""
        fields, _ = self._strict(line)
        return fields if fields is not None else self._literal(line)

    def _record(self, text: str, width: int) -> tuple[list[str] | None, int]:
        """(fields or None, lines used) of the record that begins with this line."""
        fields, still_open = self._strict(text)
        if fields is not None and len(fields) == width:
            return fields, 1
        if still_open and not self._stands_alone(text, width):
            longer = self._over_lines(text, width)
            if longer is not None:
                return longer
        fields = self._literal(text)
        closed = self._delimiter == "\t" or text.count('"') % 2 == 0
        return (fields if len(fields) == width and closed else None), 1

    def _stands_alone(self, text: str, width: int) -> bool:
        """Is it a record of a TSV file, whatever its quotation marks say?"""
        if self._delimiter != "\t" or len(self._literal(text)) != width:
            return False
        ahead = self._lines.peek(1)
        return ahead is None or isinstance(ahead[1], BadRow) or len(self.fields_of(ahead[1])) == width

    def _over_lines(self, text: str, width: int) -> tuple[list[str], int] | None:
        """The record whose open field ends on a later line."""
        parts, size = [text], len(text)
        while size <= _MAX_OPEN_BYTES and len(parts) < _MAX_OPEN_LINES:
            ahead = self._lines.peek(len(parts))
            if ahead is None or isinstance(ahead[1], BadRow):
                return None
            parts.append(ahead[1])
            size += len(ahead[1])
            if '"' in ahead[1]:
                fields, still_open = self._strict("\n".join(parts))
                if fields is not None and len(fields) == width:
                    return fields, len(parts)
                if not still_open:
                    return None
        return None

    def _strict(self, text: str) -> tuple[list[str] | None, bool]:
        """(fields, False) of a well-formed record, else (None, is a quoted field still open?)."""
        try:
            rows = list(csv.reader([text], delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return None, "unexpected end" in str(error)
        return (rows[0] if len(rows) == 1 else None), False

    def _literal(self, text: str) -> list[str]:
        """The fields of a line in which quotation marks are characters, but for those around a whole field."""
        return [unquoted(field) for field in text.split(self._delimiter)]

    def _bad(self, number: int, text: str, width: int) -> BadRow:
        _, still_open = self._strict(text)
        if still_open:
            reason = "a quotation mark opens a field that is never closed"
        else:
            reason = f"got another number of fields than the header, expected {width}"
        return BadRow(str(self._lines.path), number, reason)


def unquoted(field: str) -> str:
    """A field without the marks around it, if all marks within are doubled, as CSV writes them."""
    if len(field) < 2 or not field[0] == field[-1] == '"':
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')
