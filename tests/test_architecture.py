"""The page about the architecture names things that exist, and the floors that the import linter enforces."""

import pkgutil
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FLOORS, LIFE = PAGE.split("## The life of a step")
NAMES = sorted(set(re.findall(r"`((?:a2tgpo\.)?(?:\w+\.)+\w+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_page_exists(name: str) -> None:
    pkgutil.resolve_name(f"a2tgpo.{name.removeprefix('a2tgpo.')}")


def test_the_page_names_enough_to_be_worth_the_check() -> None:
    assert len(NAMES) >= 20


def test_floors_are_those_of_the_import_linter() -> None:
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", FLOORS, flags=re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [set(layer.split(" | ")) for layer in layers]


def test_the_picture_is_a_picture() -> None:
    """Well-formed, of its own size, without script or foreign content, so that every viewer shows it."""
    [shown] = re.findall(r"\]\((images/[\w.-]+)\)", PAGE)
    picture = ElementTree.parse(ROOT / "docs" / shown).getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert {element.tag.rpartition("}")[2] for element in picture.iter()} <= {
        "svg", "title", "defs", "marker", "path", "rect", "text",
    }  # fmt: skip


def test_links_of_the_contributors_pages_lead_somewhere() -> None:
    for page in (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), link
