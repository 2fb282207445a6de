"""Raw rows of a data file, one at a time, whatever its container: JSONL, JSON, Parquet, CSV or TSV, each also gzipped.

A row that cannot be read is a `BadRow` with file, line and reason, never an exception and never silently gone. Memory
stays bounded by the longest row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from a2tgpo.envs.data.json_files import iter_json, iter_json_lines
from a2tgpo.envs.data.rows import MAX_ROW_BYTES, BadRow, Row, object_row
from a2tgpo.envs.data.tables import Headerless, always_header, iter_table
from a2tgpo.errors import DataError

KINDS = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
"""Endings of files that can be read."""
_BATCH_ROWS = 256


def kind_of(path: Path) -> str:
    """The ending that says how a file is read, without ".gz"; empty if it has none."""
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1].lower() if suffixes else ""


def iter_rows(
    path: str | Path, max_row_bytes: int = MAX_ROW_BYTES, headerless: Headerless = always_header
) -> Iterator[Row | BadRow]:
    """The rows of a file in order.

    Args:
        headerless: which tables begin with data instead of a header.

    Raises:
        DataError: if the file cannot be opened, or its kind is unknown.
    """
    path = Path(path)
    kind = kind_of(path)
    if kind not in KINDS and (kind or path.exists()):
        raise DataError(
            f"{path}: got a file of kind {kind or 'unknown'!r}, expected one of {', '.join(KINDS)}, each also with .gz"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    try:
        match kind:
            case ".parquet":
                yield from _parquet(path)
            case ".json":
                yield from iter_json(path, max_row_bytes)
            case ".csv" | ".tsv":
                yield from iter_table(path, kind, max_row_bytes, headerless)
            case _:
                yield from iter_json_lines(path, max_row_bytes)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _parquet(path: Path) -> Iterator[Row | BadRow]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for data in _batch(batch):
                    number += 1
                    yield BadRow(str(path), number, "not UTF-8") if data is None else object_row(path, number, data)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: cannot be read as Parquet after row {number}: {error}") from error


def _batch(batch: Any) -> list[dict[str, Any] | None]:
    """The rows of a pyarrow batch, None for one that is not UTF-8."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        if len(batch) == 1:
            return [None]
        middle = len(batch) // 2
        return _batch(batch.slice(0, middle)) + _batch(batch.slice(middle))
