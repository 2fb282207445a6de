"""The arrangement of folders: links, the package map, and what a wheel holds."""

import shutil
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


def test_a_wheel_holds_the_package_only_and_all_of_it(tmp_path: Path) -> None:
    """Built in a copy, so that nothing is left in the working tree, and without the network."""
    source, shipped = tmp_path / "source", set()
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for top in ("a2tgpo", *LINKED):
        shutil.copytree(ROOT / top, source / top, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        package = "a2tgpo" if top == "a2tgpo" else f"a2tgpo/{top}"
        files = (path for path in (source / top).rglob("*") if path.is_file())
        shipped |= {f"{package}/{path.relative_to(source / top).as_posix()}" for path in files}
    code = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((source / "dist").glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == shipped
    assert names >= {"a2tgpo/py.typed", "a2tgpo/recipes/quickstart.toml", "a2tgpo/envs/almanac/ATTRIBUTION.md"}
