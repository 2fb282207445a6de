"""Shared pieces of the test suite."""

import os
from pathlib import Path

# before torch is imported: two threads on two busy cores are slower than one
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest

DATA = Path(__file__).resolve().parent / "data"
"""Numbers and rows that the tests need, as described in its README."""
SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def shared_file(relative: str) -> Path:
    """A file of the data folder beside the project; the test is skipped where it is absent (a user's clone)."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs {relative} from the data folder beside the project, which this clone does not have")
    return path
