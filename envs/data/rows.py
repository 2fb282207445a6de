"""Raw rows of a data file, one at a time, whatever its container: JSONL, a JSON array, Parquet, CSV or TSV, each also
gzipped.

A row that cannot be read is a `BadRow` with file, line and reason, never an exception and never silently gone. Memory
stays bounded by the longest row.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2tgpo.errors import ConfigError, DataError

MAX_ROW_BYTES = 32 << 20
"""A longer row is a bad row; real rows with twenty paragraphs have about 20 kB."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One readable row."""

    file: str
    line: int
    """Line in the file for line-based containers, else the row's number; both start at 1."""
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that could not be used."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def iter_rows(path: str | Path, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Row | BadRow]:
    """The rows of a file in order.

    Raises:
        DataError: if the file cannot be opened, or its kind is unknown.
    """
    path = Path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    kind = suffixes[-1].lower() if suffixes else ""
    if kind not in _READERS and (kind or path.exists()):
        raise DataError(
            f"{path}: got a file of kind {kind or 'unknown'!r}, expected one of {', '.join(_READERS)}, each also"
            " with .gz"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    try:
        yield from _READERS[kind](path, max_row_bytes)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def parse_json(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        ConfigError: if it is not JSON, or nested too deeply to read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ConfigError("JSON nested too deeply") from error


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def iter_json_lines(path: Path, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Row | BadRow]:
    """The rows of a file with one JSON object per line, whatever its name."""
    with _open(path) as file:
        line = 0
        while data := file.readline(max_row_bytes + 1):
            line += 1
            if len(data) > max_row_bytes:
                length = len(data)
                while not data.endswith(b"\n") and (data := file.readline(_CHUNK)):
                    length += len(data)
                yield BadRow(str(path), line, f"line of {length} bytes, expected at most {max_row_bytes}")
            elif data.strip():
                yield _row(path, line, data.removeprefix(b"\xef\xbb\xbf") if line == 1 else data)


def _row(path: Path, line: int, data: bytes) -> Row | BadRow:
    try:
        value = parse_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return BadRow(str(path), line, f"not UTF-8: byte {error.start} of the line is {error.object[error.start]:#04x}")
    except ValueError as error:
        return BadRow(str(path), line, f"not JSON: {error}")
    return _object(path, line, value)


def _object(path: Path, line: int, value: Any) -> Row | BadRow:
    if not isinstance(value, Mapping):
        return BadRow(str(path), line, f"got a JSON {type(value).__name__}, expected an object with named fields")
    return Row(str(path), line, value)


def _json(path: Path, max_row_bytes: int) -> Iterator[Row | BadRow]:
    """A JSON array of objects, read piece by piece; or one object: columns of equal length, or TriviaQA's `{"Data":
    [...]}`.
    """
    with _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape") as text:
        head = text.read(_CHUNK)
        if head.lstrip().startswith("["):
            yield from _array(path, text, head, max_row_bytes)
            return
        try:
            value = parse_json(head + text.read())
        except ValueError as error:
            raise DataError(
                f"{path}: not JSON: {error}; a file with one object per line must be named .jsonl"
            ) from error
    if isinstance(value, Mapping) and isinstance(value.get("Data"), list):
        rows = value["Data"]
    elif isinstance(value, Mapping) and value and all(isinstance(column, list | Mapping) for column in value.values()):
        rows = _of_columns(path, value)
    else:
        raise DataError(
            f"{path}: got a JSON {type(value).__name__}, expected an array of objects, or an object of columns"
        )
    yield from (_object(path, number, row) for number, row in enumerate(rows, start=1))


def _of_columns(path: Path, columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    values = {
        name: list(column.values()) if isinstance(column, Mapping) else column for name, column in columns.items()
    }
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: got columns of different lengths {lengths}, expected one value per row in each")
    return (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))


def _array(path: Path, text: io.TextIOWrapper, buffer: str, max_row_bytes: int) -> Iterator[Row | BadRow]:
    decoder = json.JSONDecoder()
    buffer = buffer.lstrip()[1:]
    number = 0
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        if buffer.startswith("]"):
            return
        number += 1
        value, end, problem = _next_value(decoder, buffer)
        while problem and len(buffer) <= max_row_bytes and (more := text.read(max(_CHUNK, len(buffer)))):
            buffer = buffer.lstrip(" \t\r\n,") + more
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
        if _has_surrogates(buffer[:end]):
            yield BadRow(str(path), number, "not UTF-8")
        else:
            yield _object(path, number, value)
        buffer = buffer[end:]


def _next_value(decoder: json.JSONDecoder, buffer: str) -> tuple[Any, int, str]:
    try:
        value, end = decoder.raw_decode(buffer)
    except (ValueError, RecursionError) as error:
        return None, 0, str(error)
    return value, end, ""


def _has_surrogates(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _parquet(path: Path, max_row_bytes: int) -> Iterator[Row | BadRow]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for data in batch.to_pylist():
                    number += 1
                    yield Row(str(path), number, data)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as Parquet after row {number}: {error}") from error


def _table(delimiter: str) -> Callable[[Path, int], Iterator[Row | BadRow]]:
    def read(path: Path, max_row_bytes: int) -> Iterator[Row | BadRow]:
        csv.field_size_limit(max_row_bytes)
        with (
            _open(path) as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
        ):
            reader = csv.DictReader(text, delimiter=delimiter)
            while True:
                try:
                    data = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield BadRow(str(path), reader.line_num, f"not {'CSV' if delimiter == ',' else 'TSV'}: {error}")
                    continue
                if None in data or None in data.values():
                    yield BadRow(
                        str(path),
                        reader.line_num,
                        f"got another number of fields than the header, expected {len(reader.fieldnames or ())}",
                    )
                elif any(_has_surrogates(value) for value in data.values()):
                    yield BadRow(str(path), reader.line_num, "not UTF-8")
                else:
                    yield Row(str(path), reader.line_num, data)

    return read


_READERS: dict[str, Callable[[Path, int], Iterator[Row | BadRow]]] = {
    ".jsonl": iter_json_lines,
    ".ndjson": iter_json_lines,
    ".json": _json,
    ".parquet": _parquet,
    ".csv": _table(","),
    ".tsv": _table("\t"),
}
