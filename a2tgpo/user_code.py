"""Code of one's own, named as `path.py:name` in a recipe or on the command line. Reading it runs the file.

Only commands that train, play or evaluate under a recipe come here; showing a run never does.
"""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from a2tgpo.errors import A2TGPOError, ConfigError


def names_file(name: str) -> bool:
    """Is it written as `path.py:name`?"""
    path, colon, _ = name.rpartition(":")
    return bool(colon) and path.endswith(".py")


def from_file(setting: str, name: str) -> tuple[Any, ModuleType]:
    """What `path.py:name` names, and the module that was made of the file; one module per file and process.

    Args:
        setting: where it was named, for the message.
        name: with a path relative to the working directory, or an absolute one.

    Raises:
        ConfigError: if there is no such file, running it fails, or it has nothing of that name.
    """
    given, _, attribute = name.rpartition(":")
    module = _module(setting, Path(given))
    if not hasattr(module, attribute):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise ConfigError(
            f"{setting}: got {name!r}, but the file has no {attribute!r}; it has {', '.join(own) or 'nothing'}"
        )
    return getattr(module, attribute), module


def _module(setting: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(
            f"{setting}: got file {str(path)!r}, which does not exist; expected path.py:NAME with a path relative to"
            f" {Path.cwd()}"
        )
    name = f"a2tgpo_user_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, path
        assert spec.loader is not None, path
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up here
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if not isinstance(error, Exception) or isinstance(error, A2TGPOError):
                raise
            raise ConfigError(
                f"{setting}: got file {str(path)!r}, which cannot be imported ({_what(error, path)}); expected a module"
                " that runs without an error"
            ) from error
    return sys.modules[name]


def _what(error: Exception, path: Path) -> str:
    """An error with the last line of the user's own file that it went through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    return f"{type(error).__name__}: {error}" + (f", line {line}" if line and "line" not in str(error) else "")
