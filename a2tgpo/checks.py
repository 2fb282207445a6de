"""Checks of what users pass, perhaps read from a file or a command line: each raises ConfigError with the name, what
was got and what was expected.

`check_…` look at a value; `…_field` at a field of a frozen dataclass while it is being built, where a number may be
stored in its proper type.
"""

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from math import inf
from numbers import Integral, Real

from a2tgpo.errors import ConfigError


def did_you_mean(got: object, known: Iterable[str]) -> str:
    """'; did you mean X?' for the known name nearest to what was got, as the end of a message; empty if none is
    close.
    """
    nearest = get_close_matches(str(got), list(known), n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


class KnownFields:
    """Base of dataclasses that answer a misspelt parameter with the nearest one that they have.

    Raises:
        ConfigError: on a parameter that is not a field, where Python's own TypeError would name no other.
    """

    __slots__ = ()

    def __new__(cls, **values: object) -> "KnownFields":
        known = [entry.name for entry in fields(cls)]  # type: ignore[arg-type]  # subclasses are dataclasses
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(
                    f"{cls.__name__}: got unknown parameter {name!r}, expected one of {', '.join(known)}{hint}"
                )
        return super().__new__(cls)


def check_whole(name: str, value: object, least: int, hint: str = "") -> int:
    """The value, which must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigError(f"{name}: got {value!r}, expected a whole number of at least {least}{hint}")
    return int(value)


def check_number(name: str, value: object, low: float = -inf, high: float = inf, hint: str = "") -> float:
    """The value, which must be a finite number between `low` and `high`, both allowed."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and low <= float(value) <= high and abs(float(value)) < inf):  # type: ignore[arg-type]
        raise ConfigError(f"{name}: got {value!r}, expected a number {_range(low, high)}{hint}")
    return float(value)  # type: ignore[arg-type]


def check_flag(name: str, value: object) -> None:
    """The value must be true or false: the text "false" would count as true."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: got {value!r}, expected True or False")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """The value must be one of `choices`."""
    allowed = list(choices)
    if value not in allowed:
        raise ConfigError(f"{name}: got {value!r}, expected one of {', '.join(allowed)}{did_you_mean(value, allowed)}")


def number_field(owner: object, field: str, low: float = -inf, high: float = inf) -> None:
    """`check_number` of a field; a whole number becomes a float."""
    _store(owner, field, check_number(_named(owner, field), getattr(owner, field), low, high))


def whole_field(owner: object, field: str, least: int) -> None:
    """`check_whole` of a field; 3.0, as a recipe may have read it, becomes 3."""
    value = getattr(owner, field)
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    _store(owner, field, check_whole(_named(owner, field), whole, least))


def flag_field(owner: object, field: str) -> None:
    """`check_flag` of a field."""
    check_flag(_named(owner, field), getattr(owner, field))


def choice_field(owner: object, field: str, choices: Iterable[str]) -> None:
    """`check_choice` of a field."""
    check_choice(_named(owner, field), getattr(owner, field), choices)


def _named(owner: object, field: str) -> str:
    return f"{type(owner).__name__}.{field}"


def _store(owner: object, field: str, value: object) -> None:
    object.__setattr__(owner, field, value)  # owners are frozen; this runs while they are being built


def _range(low: float, high: float) -> str:
    if high < inf:
        return f"from {low:g} to {high:g}"
    return f"of at least {low:g}" if low > -inf else "that is finite"
