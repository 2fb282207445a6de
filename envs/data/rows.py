"""One raw row of a data file, readable or not, and what the readers of all containers share."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2tgpo.errors import ConfigError, DataError

MAX_ROW_BYTES = 32 << 20
"""A longer row is a bad row; real rows with twenty paragraphs have about 20 kB."""
CHUNK = 1 << 20
"""Bytes read at a time."""
Bytes = gzip.GzipFile | io.BufferedReader
"""An open file."""
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_GZIP_MARK = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Row:
    """One readable row."""

    file: str
    line: int
    """First line of the row in the file for line-based containers, else the row's number; both start at 1."""
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that could not be used."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def parse_json(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        ConfigError: if it is not JSON, or nested too deeply to read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ConfigError("JSON nested too deeply") from error


def open_text(path: Path) -> Bytes:
    """The bytes of a text file, unpacked if they are gzipped, whatever the file's name, and without a byte order mark.

    Raises:
        DataError: for UTF-16.
    """
    with path.open("rb") as raw:
        packed = raw.read(len(_GZIP_MARK)) == _GZIP_MARK
    file = gzip.GzipFile(path) if packed else path.open("rb")
    mark = file.read(len(_UTF8_MARK))
    if mark[:2] in _UTF16_MARKS:
        file.close()
        raise DataError(f"{path}: got UTF-16, expected UTF-8; save it again as UTF-8")
    if mark != _UTF8_MARK:
        file.seek(0)
    return file


def iter_lines(path: Path, file: Bytes, max_row_bytes: int) -> Iterator[tuple[int, bytes | BadRow]]:
    """(number, content) of every line, without its end. Lines end at the newline character, with or without a carriage
    return before it; others that Unicode knows (U+2028) are text.
    """
    number = 0
    while data := file.readline(max_row_bytes + 1):
        number += 1
        if len(data) <= max_row_bytes:
            yield number, data.removesuffix(b"\n").removesuffix(b"\r")
            continue
        length = len(data)
        while not data.endswith(b"\n") and (data := file.readline(CHUNK)):
            length += len(data)
        yield number, BadRow(str(path), number, f"line of {length} bytes, expected at most {max_row_bytes}")


def decoded(path: Path, line: int, data: bytes) -> str | BadRow:
    """A line as text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(str(path), line, f"not UTF-8: byte {error.start} of the line is {error.object[error.start]:#04x}")


def object_row(path: Path, line: int, value: Any) -> Row | BadRow:
    """A JSON value as a row: it must be an object, and its texts must be writable."""
    if not isinstance(value, Mapping):
        return BadRow(str(path), line, f"got a JSON {type(value).__name__}, expected an object with named fields")
    broken = _lone_surrogate(value)
    if broken is not None:
        where = broken or "a field's name"
        return BadRow(str(path), line, f"{where}: half of a surrogate pair, which is not a character")
    return Row(str(path), line, value)


def _lone_surrogate(value: Any, name: str = "") -> str | None:
    """The field in which a text cannot be encoded, else None."""
    if isinstance(value, str):
        return None if value.isascii() or encodable(value) else name
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not encodable(str(key)):
                return name
            found = _lone_surrogate(entry, name or str(key))
            if found is not None:
                return found
    elif isinstance(value, list):
        for entry in value:
            found = _lone_surrogate(entry, name)
            if found is not None:
                return found
    return None


def encodable(text: str) -> bool:
    """Can the text be written as UTF-8? Half of a surrogate pair cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
