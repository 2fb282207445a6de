"""Dataclasses from nested mappings, with every key, type and range checked.

Own code, since pydantic's dataclasses were tried and say less: in strict mode they take no mapping, otherwise true
becomes 1 and "3" becomes 3; a misspelt setting is an "unexpected keyword argument" without the nearest one, and a range
has no room for its reason. msgspec does not say what was got. Each message had to be written anew around them.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal, TypeVar, Union

from a2tgpo.checks import did_you_mean
from a2tgpo.errors import ConfigError

_T = TypeVar("_T")
DEEPEST = 8
"""Tables inside tables that an option may have."""


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a setting may hold; stands beside it as `Annotated[int, Range(1)]`. All must be finite."""

    low: int | float = -inf
    high: int | float = inf
    above: bool = False
    """Must it be above `low`, not equal to it?"""
    why: str = ""
    """End of the message."""

    def check(self, where: str, value: int | float) -> None:
        """Raise ConfigError if the number is outside."""
        if (self.low < value if self.above else self.low <= value) and value <= self.high and abs(value) < inf:
            return
        if self.above:
            expected = "a positive number" if self.low == 0 and self.high == inf else f"a number above {self.low:g}"
        elif self.high < inf:
            expected = f"a number from {self.low:g} to {self.high:g}"
        else:
            expected = f"at least {self.low:g}"
        raise ConfigError(f"{where}: got {value}, expected {expected}{self.why}")


def from_dict(cls: type[_T], data: Mapping[str, Any], where: str = "") -> _T:
    """Build a dataclass from nested mappings, checking keys and types; ranges are checked by `check_ranges`.

    Raises:
        ConfigError: naming the field, what was got and what was expected.
    """
    types_of = typing.get_type_hints(cls)
    for key in data:
        if key not in types_of:
            raise ConfigError(
                f"{where}{key}: unknown setting, expected one of {', '.join(types_of)}{did_you_mean(key, types_of)}"
            )
    return cls(**{key: _checked(value, types_of[key], f"{where}{key}") for key, value in data.items()})


def check_ranges(settings: Any) -> None:
    """Check all numbers of a dataclass and of those in it against the ranges beside them.

    Raises:
        ConfigError: for the first that is outside.
    """
    for name, number, limits in ranges(settings):
        limits.check(name, number)


def ranges(settings: Any, where: str = "") -> Iterator[tuple[str, int | float, Range]]:
    """(dotted name, number, range) of all settings that have one."""
    for name, hint in typing.get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            yield from ranges(value, f"{where}{name}.")
        else:
            yield from _ranges(value, hint, f"{where}{name}")


def _ranges(value: Any, hint: Any, where: str) -> Iterator[tuple[str, int | float, Range]]:
    """Of one value; a tuple has those of its items, and perhaps one for their number."""
    if typing.get_origin(hint) is Annotated:
        number = len(value) if isinstance(value, tuple) else value
        name = f"{where} (number of values)" if isinstance(value, tuple) else where
        yield from ((name, number, each) for each in hint.__metadata__ if isinstance(each, Range))
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple and isinstance(value, tuple):
        kinds = typing.get_args(hint)
        for index, item in enumerate(value):
            yield from _ranges(item, kinds[0 if kinds[-1] is Ellipsis else index], f"{where}[{index}]")


def _checked(value: Any, expected: Any, where: str) -> Any:
    """`value` as the annotated type; TOML integers pass as floats, lists as tuples."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if expected is Any:
        return value
    if dataclasses.is_dataclass(expected) and isinstance(value, Mapping):
        return from_dict(typing.cast(type[Any], expected), value, f"{where}.")
    if origin is Literal:
        if value in arguments:
            return value
        names = [str(name) for name in arguments]
        raise ConfigError(
            f"{where}: got {value!r}, expected one of {', '.join(names)}{did_you_mean(str(value), names)}"
        )
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(value):
            raise ConfigError(f"{where}: got {len(value)} values, expected {len(kinds)}")
        return tuple(
            _checked(item, kind, f"{where}[{index}]")
            for index, (item, kind) in enumerate(zip(value, kinds, strict=True))
        )
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _checked(item, arguments[1], f"{where}.{key}") for key, item in value.items()}
    if origin in (Union, types.UnionType):
        if type(value) in arguments:
            return value
        if float in arguments and type(value) is int:
            return float(value)
        for kind in arguments:
            if isinstance(value, {tuple: list | tuple, dict: Mapping}.get(typing.get_origin(kind), ())):
                return _checked(value, kind, where)
    elif expected is float and type(value) in (int, float):
        return float(value)
    elif isinstance(expected, type) and type(value) is expected:
        return value
    raise ConfigError(
        f"{where}: got {value!r} ({type(value).__name__}), expected {getattr(expected, '__name__', expected)}"
    )


def flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings with dotted keys: `{"loss": {"clip_low": 1}}` is `{"loss.clip_low": 1}`. An empty mapping stays a
    value.
    """
    return dict(_leaves(data, ""))


def _leaves(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def merged(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with some entries changed; a table changes the entries that it has, anything else replaces."""
    both = {
        name: merged(data[name], value) if isinstance(value, Mapping) and isinstance(data.get(name), Mapping) else value
        for name, value in changes.items()
    }
    return {**data, **both}


def nested(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Dotted keys as tables: `{"loss.clip_low": 1}` is `{"loss": {"clip_low": 1}}`, as command lines write options.

    Raises:
        ConfigError: for a name that is both a value and a table, a value that is no number, text, flag or list of
            these, and tables nested too deeply.
    """
    found: dict[str, Any] = {}
    for name, value in _leaves(data, ""):
        *tables, last = name.split(".")
        if len(tables) >= DEEPEST:
            raise ConfigError(f"{where}: got tables nested more than {DEEPEST} deep, expected single options")
        place = found
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{where}.{name}: got a table, but {table} is a value already; give one of them")
        if last in place:
            raise ConfigError(f"{where}.{name}: got it twice, expected one value or one table")
        place[last] = {} if value == {} else _plain(value, f"{where}.{name}")
    return found


def _plain(value: Any, where: str) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    if any(not isinstance(item, bool | int | float | str) for item in items):
        raise ConfigError(f"{where}: got {value!r}, expected a number, a text, true or false, or a list of these")
    return list(value) if isinstance(value, tuple) else value
