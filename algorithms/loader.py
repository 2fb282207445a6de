"""From a name in a recipe, or a file of your own, to an algorithm."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.algorithms.base import Algorithm
from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.checks import did_you_mean
from a2tgpo.errors import ConfigError


def load_algorithm(name: str) -> type[Algorithm]:
    """The algorithm class called `name`.

    Args:
        name: a key of `ALGORITHMS`, or `path.py:Class` for an algorithm that lives outside of the package. Importing
            that file runs it.

    Raises:
        ConfigError: if there is no such algorithm, file or class, or the class is no frozen dataclass derived from
            `Algorithm`.
    """
    path, colon, class_name = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), class_name)
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
    return cls(**given)  # type: ignore[arg-type]  # the class checks each value itself


def _changed_loss(loss: LossSpec, changes: Mapping[str, object]) -> LossSpec:
    known = [field.name for field in fields(LossSpec)]
    for name in changes:
        if name not in known:
            raise ConfigError(
                f"loss: got unknown field {name!r}, expected one of {', '.join(known)}{did_you_mean(name, known)}"
            )
    return replace(loss, **dict(changes))  # type: ignore[arg-type]  # LossSpec checks each value itself


def _from_file(path: Path, class_name: str) -> type[Algorithm]:
    if not path.is_file():
        raise ConfigError(
            f"algorithm: got file {str(path)!r}, which does not exist; expected path.py:Class with a path relative to"
            f" {Path.cwd()}"
        )
    module_name = f"a2tgpo_algorithm_{path.stem}_{abs(hash(path.resolve()))}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"algorithm: got file {str(path)!r}, expected a Python file that can be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up here
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    module = sys.modules[module_name]
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Algorithm) and is_dataclass(found)):
        own = [
            key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module_name
        ]
        classes = ", ".join(own) or "no class"
        raise ConfigError(
            f"algorithm: got class {class_name!r} of {path}, expected a frozen dataclass derived from Algorithm; the"
            f" file has {classes}"
        )
    return found
