"""The tables "paper / released code / ours" on the pages of the algorithms: published values from
`docs/algorithms/published.toml`, ours from the presets themselves.

    python docs/settings_tables.py            # writes them into the pages
"""

import sys
import tomllib
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from a2tgpo.algorithms import ALGORITHMS, Algorithm, LossSpec
from a2tgpo.config import load_recipe

PAGES = Path(__file__).resolve().parent / "algorithms"
BEGIN, END = "<!-- settings: made by docs/settings_tables.py -->", "<!-- end of settings -->"
QUIET = (
    "generation_batch",
    "gain_floor",
    "max_resamples",
    "surrogate",
    "divisor",
    "importance_cap",
    "merge_equal_turns",
)
"""Fields that get a row only where a preset or a publication says anything about them."""


def published() -> dict[str, Any]:
    """Page → its presets and what was published about their settings."""
    return tomllib.loads((PAGES / "published.toml").read_text(encoding="utf-8"))


def table(page: dict[str, Any]) -> str:
    """The table of a page.

    Raises:
        KeyError: if something is published about a setting that no preset of the page has.
    """
    presets = {name: ALGORITHMS[name]() for name in page["presets"]}
    known = dict.fromkeys(name for preset in presets.values() for name in settings(preset))
    unknown = set(page["settings"]) - set(known)
    if unknown:
        raise KeyError(f"published.toml: {sorted(unknown)} are not settings of {page['presets']}")
    lines = [
        "| setting | paper | released code | " + " | ".join(f"ours: `{name}`" for name in presets) + " |",
        "|---|---|---|" + "---|" * len(presets),
    ]
    for name in known:
        values = [settings(preset).get(name) for preset in presets.values()]
        said = page["settings"].get(name)
        if said or name.rpartition(".")[2] not in QUIET or any(value != default(name) for value in values):
            lines.append(row(f"`{name}`", said or ["–", "–"], [text(value) for value in values]))
    recipe = load_recipe(page["recipe"]) if "recipe" in page else None
    for other in page.get("others", []):
        ours = f"{text(attrgetter(other['ours'])(recipe))} (`{page['recipe']}`)" if "ours" in other else "the recipe's"
        lines.append(row(other["setting"], other["published"], [ours] * len(presets)))
    return "\n".join(lines)


def settings(preset: Algorithm) -> dict[str, Any]:
    """All settings of an algorithm and of its loss, by their names in a recipe."""
    own = {entry.name: getattr(preset, entry.name) for entry in fields(preset) if entry.name != "loss"}
    return own | {f"loss.{entry.name}": getattr(preset.loss, entry.name) for entry in fields(LossSpec)}


def default(name: str) -> Any:
    """What a setting is where nobody says anything about it."""
    owner, field = (LossSpec(), name.removeprefix("loss.")) if name.startswith("loss.") else (Algorithm(), name)
    return getattr(owner, field, None)


def row(name: str, said: list[str], ours: list[str]) -> str:
    """A line of the table."""
    return "| " + " | ".join([name, *said, *ours]) + " |"


def text(value: Any) -> str:
    """A value as a recipe writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def with_table(page: str, made: str) -> str:
    """A page's text with its table in place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> None:
    """Write every table into its page."""
    for name, page in published().items():
        path = PAGES / f"{name}.md"
        old = path.read_text(encoding="utf-8")
        if BEGIN not in old:
            sys.exit(f"{path}: expected a line {BEGIN!r}, then {END!r}")
        path.write_text(with_table(old, table(page)), encoding="utf-8")


if __name__ == "__main__":
    main()
