"""Files that are either whole or not there, their hashes, and numbers as JSON can hold them."""

import csv
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from a2tgpo.errors import DataError


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or none."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file or none; numbers that are not finite become null."""
    write_text(path, json.dumps(nulls(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write a whole file of JSON lines or none; numbers that are not finite become null."""
    write_text(path, "".join(json.dumps(nulls(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a whole CSV file or none; NaN becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([nulls(list(row)) for row in rows])
    write_text(path, text.getvalue())


def read_json_lines(path: Path) -> list[Any]:
    """The values of a file of JSON lines. Only \\n ends a line: recorded texts may hold any other separator.

    Raises:
        DataError: naming the line, if one is not JSON.
    """
    values = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise DataError(
                    f"{path}: line {number} is not JSON ({error}); fix or remove the line, or make the file again"
                ) from error
    return values


def publish(partial: Path, final: Path) -> None:
    """Flush a finished folder to disk and give it its name; a folder of that name from an earlier attempt is
    replaced.
    """
    for file in [*(path for path in partial.rglob("*") if path.is_file()), partial]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if final.exists():
        shutil.rmtree(final)
    partial.rename(final)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def nulls(value: Any) -> Any:
    """The same value with `None` for every number that is not finite, which JSON cannot hold; deep."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): nulls(item) for key, item in value.items()}
    return [nulls(item) for item in value] if isinstance(value, list | tuple) else value
