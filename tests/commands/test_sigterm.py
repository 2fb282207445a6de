"""SIGTERM keeps the promise of docs/runs.md from the first line on: exit code 0, and the same command resumes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.config import to_toml
from tests.support.recipes import small_recipe


def importing(process: "subprocess.Popen[str]", _folder: Path) -> bool:
    """Is torch being imported, or has it been?"""
    maps = Path(f"/proc/{process.pid}/maps")
    return "libtorch" in maps.read_text() if maps.exists() else False


def warming(_process: "subprocess.Popen[str]", folder: Path) -> bool:
    """Has the warm start begun? It holds its claim."""
    return any((folder / "runs" / ".cache").glob(".claim-*"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize("moment", [importing, warming], ids=lambda moment: moment.__name__)
def test_sigterm_before_there_is_a_run(
    tmp_path: Path, command: str, moment: Callable[["subprocess.Popen[str]", Path], bool]
) -> None:
    endless = replace(small_recipe().warm_start, max_steps=100_000, target_success=1.0)
    (tmp_path / "small.toml").write_text(to_toml(replace(small_recipe(), warm_start=endless)))
    words = [sys.executable, "-m", "a2tgpo", command, "small.toml"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        while not moment(process, tmp_path):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0, printed
    assert "Traceback" not in printed
    assert printed.strip().splitlines()[-1].startswith("stopped")
    assert not list((tmp_path / "runs").glob("*/*/checkpoints"))
