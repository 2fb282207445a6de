"""One run, one folder, one process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from a2tgpo.errors import ConfigError


class InUseError(ConfigError):
    """Another process holds the folder."""


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the folder of a run or a study for this process.

    The lock is the kernel's, so it is gone with the process however that ends.

    Raises:
        ConfigError: if the folder cannot be written.
        InUseError: if another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(
            f"run folder: cannot write {folder} ({error.strerror}); choose another with --runs FOLDER, or mend its"
            " permissions"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUseError(
                f"run folder: {folder} is in use by another process; wait for it, or choose another folder or name"
            ) from error
        yield
    finally:
        os.close(descriptor)
