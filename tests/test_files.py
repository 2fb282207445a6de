"""Files that are whole or not there, in JSON that every reader takes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from a2tgpo.errors import DataError, StorageError
from a2tgpo.files import nulls, read_json_lines, write_csv, write_json, write_json_lines, write_text

SEPARATORS = "a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg\rh"
"""Everything but \\n that `str.splitlines` takes for the end of a line."""


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    rows = [{"text": SEPARATORS}, {"text": "plain", "value": math.nan}]
    write_json_lines(tmp_path / "rows.jsonl", rows)
    assert read_json_lines(tmp_path / "rows.jsonl") == [rows[0], {"text": "plain", "value": None}]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": 1}\n{"a": \xff}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl: line 2 is not JSON"):
        read_json_lines(tmp_path / "rows.jsonl")


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    value = {1: math.nan, "deep": [(math.inf, np.float64("nan"), 2.5, True, None, "x")]}
    expected = {"1": None, "deep": [[None, None, 2.5, True, None, "x"]]}
    assert nulls(value) == expected
    write_json(tmp_path / "value.json", value)
    assert json.loads((tmp_path / "value.json").read_text()) == expected
    write_csv(tmp_path / "value.csv", ["name", "em"], [["a, b", math.nan], ["c", 0.5]])
    assert (tmp_path / "value.csv").read_text() == 'name,em\n"a, b",\nc,0.5\n'


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "file", "old")

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="No space left on device"):
        write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
