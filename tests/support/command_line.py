"""The command line as a user meets it."""

import pytest

from a2tgpo.cli import main


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return " ".join(captured.err.split())
