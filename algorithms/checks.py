"""Checks of hyper-parameters, made once when an algorithm or a loss is built."""

from collections.abc import Iterable
from difflib import get_close_matches
from math import inf


def check_choice(owner: object, field: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless `owner.field` is one of `choices`."""
    value, allowed = getattr(owner, field), list(choices)
    if value not in allowed:
        raise ValueError(f"{type(owner).__name__}.{field}: got {value!r}, expected one of {', '.join(allowed)}{suggestion(value, allowed)}")


def check_number(owner: object, field: str, low: float = -inf, high: float = inf) -> None:
    """Raise ValueError unless `owner.field` is a finite number between `low` and `high` (both allowed); a whole number becomes a float."""
    value = getattr(owner, field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low <= value <= high and abs(value) < inf):
        raise ValueError(f"{type(owner).__name__}.{field}: got {value!r}, expected a number {_range(low, high)}")
    object.__setattr__(owner, field, float(value))  # owners are frozen; this runs while they are being built


def check_count(owner: object, field: str, low: int) -> None:
    """Raise ValueError unless `owner.field` is a whole number of at least `low`; 3.0, as a recipe may have read it, becomes 3."""
    value = getattr(owner, field)
    whole = not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    if not whole or value < low:
        raise ValueError(f"{type(owner).__name__}.{field}: got {value!r}, expected a whole number of at least {low}")
    object.__setattr__(owner, field, int(value))


def check_flag(owner: object, field: str) -> None:
    """Raise ValueError unless `owner.field` is true or false."""
    value = getattr(owner, field)
    if not isinstance(value, bool):
        raise ValueError(f"{type(owner).__name__}.{field}: got {value!r}, expected true or false")


def suggestion(got: object, known: Iterable[str]) -> str:
    """'; did you mean X?' for the known name nearest to what was got, or nothing."""
    nearest = get_close_matches(str(got), list(known), n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _range(low: float, high: float) -> str:
    if high < inf:
        return f"from {low:g} to {high:g}"
    return f"of at least {low:g}" if low > -inf else "that is finite"
