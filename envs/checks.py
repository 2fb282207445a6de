"""Numbers as users pass them, perhaps read from a file or a command line."""

from numbers import Integral, Real


def check_whole(name: str, value: object, least: int, hint: str = "") -> None:
    """Raise ValueError unless `value` is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: got {value!r}, expected a whole number, at least {least}{hint}")


def check_not_negative(name: str, value: object, hint: str = "") -> None:
    """Raise ValueError unless `value` is a number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
        raise ValueError(f"{name}: got {value!r}, expected a number of 0 or more{hint}")


def check_flag(name: str, value: object) -> None:
    """Raise ValueError unless `value` is true or false: the text "false" would count as true."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}: got {value!r}, expected True or False")
