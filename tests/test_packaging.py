"""The arrangement of folders: links, the package map, and what a wheel holds."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("envs", "algorithms", "baselines")


@pytest.mark.parametrize("name", LINKED)
def test_links_are_relative_and_lead_to_the_top_folders(name: str) -> None:
    link = ROOT / "a2tgpo" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert link.resolve() == ROOT / name


def test_the_map_lists_every_package_on_disk() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    on_disk = set()
    for top, prefix in [("a2tgpo", "a2tgpo"), *((name, f"a2tgpo.{name}") for name in LINKED)]:
        for init in (ROOT / top).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / top).parts
            if top != "a2tgpo" or not inside or inside[0] not in LINKED:
                on_disk.add(".".join((prefix, *inside)))
    assert set(settings["packages"]) == on_disk
    outside = {package for package in on_disk if package.split(".")[1:2] and package.split(".")[1] in LINKED}
    assert set(settings["package-dir"]) == outside


@pytest.mark.slow
def test_a_wheel_holds_the_package_only_and_all_of_its_data(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        check=False,
    )
    assert built.returncode == 0
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"a2tgpo"}
    for data in (
        "a2tgpo/recipes/quickstart.toml",
        "a2tgpo/envs/almanac/facts.jsonl",
        "a2tgpo/envs/almanac/ATTRIBUTION.md",
        "a2tgpo/baselines/published.csv",
    ):
        assert data in names
