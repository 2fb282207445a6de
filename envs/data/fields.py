"""The fields of a raw row: which names stand for what, and how a chosen one is found."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from a2tgpo.checks import did_you_mean
from a2tgpo.envs.data.literals import written_value


class ShapeError(ValueError):
    """A row that cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Fields that the user names because they are not found by themselves, or because a row has several candidates.

    A name may lead into objects: `extra_info.question`. Empty = found by the known names.
    """

    question: str = ""
    answer: str = ""
    context: str = ""
    """Where the paragraphs of a question are."""


KNOWN_NAMES = FieldNames()
"""Nothing named: fields are found by the known names."""


class RawRow:
    """A row whose fields are found in any spelling of capitals; missing values (null, NaN, empty cells) are absent."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.columns = tuple(map(str, data))
        self._spelling = _spellings(self.columns)
        self._data = data

    def get(self, name: str) -> Any:
        """The value of a field, or None."""
        value = self._data.get(self.spelled(name))
        return None if _is_missing(value) else value

    def is_empty(self, names: Sequence[str]) -> bool:
        """Has it one of these fields with an empty text?"""
        values = [self._data.get(name) for name in self.present(names)]
        return any(isinstance(value, str) and not value for value in values)

    def spelled(self, name: str) -> str:
        """The field's name as the row spells it."""
        return self._spelling.get(name) or self._spelling.get(name.lower(), name)

    def structured(self, name: str) -> Any:
        """The value of a field, read as a list or object where it is one that was written as text.

        Raises:
            ShapeError: if it was, but cannot be read.
        """
        return structured(self.get(name), name)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """The object in a field, empty if there is none."""
        value = self.structured(name)
        return value if isinstance(value, Mapping) else {}

    def named(self, path: str, setting: str) -> Any:
        """The value that the user's name leads to.

        Raises:
            ShapeError: if it leads nowhere.
        """
        if self.get(path) is not None:
            return self.get(path)
        value: Any = None
        for place, name in enumerate(path.split(".")):
            value = self.structured(name) if place == 0 else _entry(structured(value, path), name)
            if value is None:
                hint = did_you_mean(path, self.columns)
                raise ShapeError(f"{setting}: got {path!r}, which this row lacks or has empty; {self.found()}{hint}")
        return value

    def first(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """(name as spelled, value) of those of the names that the row has."""
        for name in self.present(names):
            value = self._data.get(name)
            if not _is_missing(value):
                yield name, value

    def present(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that the row has, as it spells them, whatever their values."""
        return _present(self.columns, tuple(names))

    def found(self) -> str:
        """What the row has, for messages."""
        return f"found the fields {', '.join(self.columns) or 'none'}"


@lru_cache(maxsize=1024)
def _spellings(columns: tuple[str, ...]) -> dict[str, str]:
    """Names in small letters, and as they are, to the names as they are."""
    return {name.strip().lower(): name for name in columns} | {name: name for name in columns}


@lru_cache(maxsize=1024)
def _present(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    spellings = _spellings(columns)
    return tuple(spellings[name] for name in names if name in spellings)


def structured(value: Any, name: str) -> Any:
    """The list or object that a text spells out; any other value as it is.

    Raises:
        ShapeError: for a text that begins like one and cannot be read.
    """
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value  # numpy's
    try:
        return written_value(value)
    except ValueError as error:
        raise ShapeError(f"{name}: {error}") from error


def plain_text(value: object) -> str:
    """A text or number as text; a number that a table turned into 1912.0 is 1912."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _entry(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return value[int(name)] if isinstance(value, list) and name.isdigit() and int(name) < len(value) else None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value) or (isinstance(value, float) and math.isnan(value))
