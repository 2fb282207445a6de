"""The cached warm start: read by any number of processes at once, made by one, and told on the way."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from a2tgpo.config import Recipe, WarmStartSettings
from a2tgpo.run_folder.lock import claim
from a2tgpo.start.prepare import RESULT, cache_key, prepare_model
from tests.support.recipes import small_recipe


def recipe() -> Recipe:
    warm = WarmStartSettings(target_success=0.0, max_steps=4, evaluate_every=2, evaluate_questions=4, demonstrations=40)
    return replace(small_recipe(), warm_start=warm)


def told(runs: Path) -> str:
    out = io.StringIO()
    prepare_model(recipe(), runs, Console(file=out, width=40))
    return out.getvalue()


def test_a_log_file_gets_a_line_per_evaluation(tmp_path: Path) -> None:
    lines = told(tmp_path).splitlines()
    assert lines[0].startswith("warm start: step 2 of at most 4, sampled EM 0.")
    assert lines[1].startswith("warm start: 2 steps, held-out EM ")
    assert len(lines) == 2


def test_reading_the_cache_needs_no_claim(tmp_path: Path) -> None:
    told(tmp_path)
    with claim(tmp_path / ".cache" / f".claim-{cache_key(recipe())}"):  # as if another process read it
        assert told(tmp_path).startswith("warm start: cached in ")


def test_who_comes_while_another_makes_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare_model(recipe(), tmp_path / "first", Console(quiet=True))
    waits = []

    def made_meanwhile(_seconds: float) -> None:
        waits.append(1)
        if len(waits) == 3:
            cache.mkdir(parents=True, exist_ok=True)
            folder.rename(cache / folder.name)

    cache = tmp_path / "second" / ".cache"
    monkeypatch.setattr("a2tgpo.start.prepare.time.sleep", made_meanwhile)
    with claim(cache / f".claim-{cache_key(recipe())}"):
        lines = told(tmp_path / "second").splitlines()
    assert len(waits) == 3
    assert [line.split(" ")[2] for line in lines] == ["another", "cached"]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"sha256": 3}', b"\xff\xfe"])
def test_a_damaged_result_is_made_again(tmp_path: Path, damage: bytes) -> None:
    told(tmp_path)
    folder = tmp_path / ".cache" / f"warm-start-{cache_key(recipe())}"
    (folder / RESULT).write_bytes(damage)
    assert "differs from what was written there, making it again" in told(tmp_path)
    assert told(tmp_path).startswith("warm start: cached in ")


def test_what_a_killed_process_left_is_cleaned_up(tmp_path: Path) -> None:
    left = tmp_path / ".cache" / f".partial-warm-start-{cache_key(recipe())}-1"
    left.mkdir(parents=True)
    told(tmp_path)
    assert not left.exists()
