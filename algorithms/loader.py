"""From a name in a recipe, or a file of your own, to an algorithm."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import get_args, get_type_hints

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.algorithms.base import Algorithm
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.checks import did_you_mean
from a2tgpo.errors import ConfigError
from a2tgpo.user_code import from_file, names_file


def load_algorithm(name: str) -> type[Algorithm]:
    """The algorithm class called `name`.

    Args:
        name: a key of `ALGORITHMS`, or `path.py:Class` for an algorithm that lives outside of the package. Importing
            that file runs it.

    Raises:
        ConfigError: if there is no such algorithm, file or class, or the class is no frozen dataclass derived from
            `Algorithm`.
    """
    if names_file(name):
        return _from_file(name)
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise ConfigError(
            f"algorithm: got {name!r}, expected one of {known}, or path.py:Class for one of your"
            f" own{did_you_mean(name, ALGORITHMS)}"
        )
    return ALGORITHMS[name]


def make_algorithm(name: str, parameters: Mapping[str, object] | None = None) -> Algorithm:
    """Build the algorithm called `name` from the parameters of a recipe.

    Args:
        name: as for `load_algorithm`.
        parameters: field values; `loss` may be a mapping that changes single fields of the algorithm's own loss.

    Raises:
        ConfigError: as `load_algorithm`, or on an unknown parameter or a value out of its range.
    """
    cls, given = load_algorithm(name), dict(parameters or {})
    changes = given.get("loss")
    if isinstance(changes, Mapping):
        published: LossSpec = cls().loss
        given["loss"] = _changed_loss(published, changes)
    return cls(**_floats(cls, given))  # type: ignore[arg-type]  # the class checks each value itself


def _changed_loss(loss: LossSpec, changes: Mapping[str, object]) -> LossSpec:
    known = [field.name for field in fields(LossSpec)]
    for name in changes:
        if name not in known:
            raise ConfigError(
                f"loss: got unknown field {name!r}, expected one of {', '.join(known)}{did_you_mean(name, known)}"
            )
    return replace(loss, **_floats(LossSpec, changes))  # type: ignore[arg-type]  # LossSpec checks each value itself


def _floats(cls: type, given: Mapping[str, object]) -> dict[str, object]:
    """The same values, with whole numbers as floats where a field takes those: a recipe may say 1 for 1.0."""
    hints = get_type_hints(cls)
    return {
        name: float(value) if type(value) is int and float in (hints.get(name), *get_args(hints.get(name))) else value
        for name, value in given.items()
    }


def _from_file(name: str) -> type[Algorithm]:
    found, module = from_file("algorithm", name)
    if not (isinstance(found, type) and issubclass(found, Algorithm) and is_dataclass(found)):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise ConfigError(
            f"algorithm: got {name!r}, expected a frozen dataclass derived from Algorithm; the file has"
            f" {', '.join(own) or 'nothing'}"
        )
    return found
