"""Shared pieces of the test suite."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def shared_file(relative: str) -> Path:
    """A file of the data folder beside the project; the test is skipped where it is absent (a user's clone)."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs {relative} from the data folder beside the project, which this clone does not have")
    return path
