"""README and docs tell the truth: their commands exist with the options shown, their first snippets run."""

import re
import shlex
from pathlib import Path

import pytest

from a2tgpo.cli import COMMANDS, main
from tests.support.finished_study import finished_study

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PARTS = ("data", "baseline", "bench")
_SPAN = re.compile(r"`(a2tgpo [a-z-][^`]+)`|^\s*(?:\$ )?(a2tgpo [a-z-][^#\n|]+)", re.MULTILINE)
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_FLAG = re.compile(r"--[a-z][a-z0-9.-]*")


def commands_of(page: Path) -> list[str]:
    found = (span or line for span, line in _SPAN.findall(page.read_text(encoding="utf-8")))
    return sorted({text.split("   ")[0].strip() for text in found if not re.match(r"a2tgpo (COMMAND|…)", text)})


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    return {}


def help_of(words: list[str], helps: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    key = " ".join(words)
    if key not in helps:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        helps[key] = capsys.readouterr().out
    return helps[key]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_exist(page: Path, helps: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for text in commands_of(page):
        words = text.split()[1:]
        if words[0].startswith("--"):
            assert words[0] in ("--help", "--version"), text
            continue
        assert words[0] in COMMANDS, text
        parted = words[0] in PARTS and len(words) > 1 and re.fullmatch(r"[a-z0-9-]+", words[1])
        shown = help_of(words[: 2 if parted else 1], helps, capsys)
        for flag in _FLAG.findall(text):
            assert re.search(rf"(?<![\w.-]){re.escape(flag)}(?![\w.-])", shown), f"{page.name}: {text}: {flag}"


def test_the_readme_s_snippets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from a2tgpo.config import StudySettings

    study = finished_study(tmp_path, StudySettings(algorithms=("a2tgpo",), seeds=(0,)), episodes=8)
    file = next((study / "a2tgpo-s0" / "episodes").glob("*.jsonl"))
    (tmp_path / "runs").mkdir()
    study.rename(tmp_path / "runs" / "quickstart")
    moved = tmp_path / "runs" / "quickstart" / "a2tgpo-s0" / "episodes"
    (moved / file.name).rename(moved / "step-000010.jsonl")
    monkeypatch.chdir(tmp_path)
    blocks = _BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "tensor(" in capsys.readouterr().out


def test_the_readme_names_every_make_target_it_uses() -> None:
    text, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)`|^    make ([a-z-]+)", text, re.MULTILINE))
    for names in targets:
        name = shlex.quote(names[0] or names[1])
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
