"""Files that are either whole or not there, their hashes, and numbers as JSON can hold them."""

import hashlib
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


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
