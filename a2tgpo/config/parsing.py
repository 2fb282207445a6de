"""Dataclasses from nested mappings, with every key and type checked."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

from a2tgpo.checks import did_you_mean
from a2tgpo.errors import ConfigError

_T = TypeVar("_T")


def from_dict(cls: type[_T], data: Mapping[str, Any], where: str = "") -> _T:
    """Build a dataclass from nested mappings, checking keys and types.

    Raises:
        ConfigError: naming the field, what was got and what was expected.
    """
    types_of = typing.get_type_hints(cls)
    names = [entry.name for entry in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in data:
        if key not in names:
            raise ConfigError(
                f"{where}{key}: unknown setting, expected one of {', '.join(names)}{did_you_mean(key, names)}"
            )
    return cls(**{key: _checked(value, types_of[key], f"{where}{key}") for key, value in data.items()})


def _checked(value: Any, expected: Any, where: str) -> Any:
    """`value` as the annotated type; TOML integers pass as floats, lists as tuples."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
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
        return {str(key): _checked(item, arguments[1], f"{where}.{key}") for key, item in flat(value).items()}
    if origin in (Union, types.UnionType):
        if type(value) in arguments:
            return value
        if float in arguments and type(value) is int:
            return float(value)
    elif expected is float and type(value) in (int, float):
        return float(value)
    elif isinstance(expected, type) and type(value) is expected:
        return value
    raise ConfigError(
        f"{where}: got {value!r} ({type(value).__name__}), expected {getattr(expected, '__name__', expected)}"
    )


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings with dotted keys: `{"loss": {"clip_low": 1}}` is `{"loss.clip_low": 1}`. An empty mapping stays a
    value.
    """
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found
