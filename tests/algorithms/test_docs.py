"""The pages cover every algorithm, quote lines that exist, and name recipes that load."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.algorithms.loader import make_algorithm

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
SOURCE = {
    line.strip()
    for path in (ROOT / "algorithms").glob("*.py")
    for line in path.read_text(encoding="utf-8").splitlines()
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_algorithm_has_its_page_in_the_index() -> None:
    index = (ROOT / "docs" / "algorithms" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|.*\| \[[^\]]+\]\((\w+\.md)\) \|$", index, flags=re.MULTILINE)
    assert {name for name, _ in named} == set(ALGORITHMS)
    assert all((ROOT / "docs" / "algorithms" / page).is_file() for _, page in named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quoted_lines_are_lines_of_the_code(page: Path) -> None:
    for block in blocks(page, "python"):
        if "import" not in block:  # a usage example
            missing = [
                line.strip()
                for line in block.splitlines()
                if line.strip() and line.strip() not in SOURCE and not line.startswith("class ")
            ]
            assert missing == []


def test_tables_of_settings_are_those_of_the_presets() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "settings_tables.py"))
    pages = made["published"]()
    assert sorted(name for page in pages.values() for name in page["presets"]) == sorted(ALGORITHMS)
    for name, page in pages.items():
        text = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
        assert made["with_table"](text, made["table"](page)) == text, "run python docs/settings_tables.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_recipes_of_the_pages_build(page: Path) -> None:
    for block in blocks(page, "toml"):
        recipe = tomllib.loads(block)
        assert make_algorithm(recipe["algorithm"], recipe.get("algorithm_options")).loss


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in ("README", "losses")], ids=lambda page: page.stem
)
def test_pages_have_equations_code_metrics_and_recipe(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert blocks(page, "python")
    assert blocks(page, "toml")
    assert "## Metrics" in text
    assert blocks(page, "math") or page.stem == "a2tgpo_released"
    assert text.count("```") % 2 == 0
    links = re.findall(r"\]\(([\w.]+\.md)\)", text)
    assert all((page.parent / link).is_file() for link in links)
