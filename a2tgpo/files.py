"""Files that are either whole or not there, their hashes, numbers as JSON can hold them, and the border at which files
and folders that a user named come in.
"""

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

from a2tgpo.errors import ConfigError, DataError, StorageError


def read_text(name: str, path: Path) -> str:
    """The text of a file that a user named.

    Args:
        name: of the argument or setting, for the message.
        path: as the user gave it.

    Raises:
        ConfigError: if it is not a file, cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # UnicodeDecodeError and a path with a null byte are ValueErrors
        raise ConfigError(
            f"{name}: got {str(path)!r}, expected a readable text file in UTF-8; {reason(error)}"
        ) from error


def output_folder(name: str, path: Path) -> Path:
    """The folder that a user named for results, made if it is not there.

    Raises:
        ConfigError: if it cannot be made or written to; better now than after the work.
    """
    if path.is_file():
        raise ConfigError(f"{name}: got {str(path)!r}, which is a file; expected a folder, to be made or filled")
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name}: got {str(path)!r}, expected a folder to be made or filled; {reason(error)}"
        ) from error
    if not writable:
        raise ConfigError(f"{name}: got {str(path)!r}, which may not be written; choose another or fix its permissions")
    return path


def output_file(name: str, path: Path) -> Path:
    """The file that a user named for a result; its folder is made if it is not there.

    Raises:
        ConfigError: if it is a folder, or its folder cannot be made or written to.
    """
    if path.is_dir():
        raise ConfigError(f"{name}: got {str(path)!r}, which is a folder; expected the name of a file")
    output_folder(name, path.parent)
    return path


def reason(error: Exception) -> str:
    """What the system said, without the errno and the path that the message already has."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none.

    Raises:
        StorageError: if the system refuses, for example because the disk is full.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or none; raises as `write_text`."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path} ({reason(error)}); free some space or fix the permissions, then give the same command"
            " again"
        ) from error


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
