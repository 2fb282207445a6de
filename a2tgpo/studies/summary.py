"""What a study leaves for people: a table, what it says in words, learning curves, and the same numbers as CSV, JSON
and Markdown.
"""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from a2tgpo.config import Recipe
from a2tgpo.display.curves import draw
from a2tgpo.display.lines import say
from a2tgpo.display.tables import show, table
from a2tgpo.files import write_csv, write_json, write_text
from a2tgpo.means import Interval
from a2tgpo.studies.comparisons import statistics_of
from a2tgpo.studies.curves import gain_panels, held_out_panels, histories
from a2tgpo.studies.study import TABLE, Job, final_intervals, final_values, labels_of
from a2tgpo.studies.verdicts import as_json, words

TITLES = {"em": "EM", "f1": "F1", "searches": "searches", "gain_per_turn": "gain/turn", "seconds": "seconds"}


def write_summary(recipe: Recipe, jobs: Sequence[Job], folder: Path) -> None:
    """Write `summary.csv`, `.json`, `.md`, `statistics.json`, `learning-curves.png` and `gain-per-turn.png` over usable
    runs.
    """
    rows = list(final_values(jobs))
    names = sorted({name for _, _, values in rows for name in values if name not in ("kind", "step")})
    write_csv(
        folder / "summary.csv",
        ["algorithm", "seed", *names],
        ([algorithm, seed, *(values.get(name, math.nan) for name in names)] for algorithm, seed, values in rows),
    )
    means = {
        algorithm: {column: _bounds(interval) for column, interval in columns.items()}
        for algorithm, columns in final_intervals(jobs).items()
    }
    write_json(folder / "summary.json", {"interval": "95 %, Student t over seeds", "algorithms": means})
    statistics = statistics_of(recipe, jobs)
    write_json(folder / "statistics.json", as_json(statistics))
    write_text(folder / "summary.md", markdown(jobs) + "\n" + "".join(f"- {line}\n" for line in words(statistics)))
    found, labels = histories(jobs), labels_of(jobs)
    draw(held_out_panels(found, labels), folder / "learning-curves.png")
    draw(gain_panels(found, labels), folder / "gain-per-turn.png")


def print_summary(recipe: Recipe, jobs: Sequence[Job], folder: Path, console: Console) -> None:
    """The table, one line per comparison, and where the rest is."""
    show(console, terminal_table(jobs, f"study {recipe.name}"))
    lines = words(statistics_of(recipe, jobs))
    if recipe.study.allow:
        lines.append(f"allowed to differ between runs: {', '.join(recipe.study.allow)}")
    lines.append(
        f"curves: {folder / 'learning-curves.png'}   numbers: {folder / 'summary.csv'}, .json, .md   all of it: a2tgpo"
        f" report {shlex.quote(str(folder))}"
    )
    say(console, *lines)


def markdown(jobs: Sequence[Job]) -> str:
    """The final table in Markdown: mean ± half of the 95 % interval over seeds."""
    lines = [
        "| algorithm | seeds | " + " | ".join(TITLES[column] for column in TABLE) + " |",
        "|---" * (len(TABLE) + 2) + "|",
    ]
    for algorithm, columns in final_intervals(jobs).items():
        cells = [algorithm, str(columns["em"].count), *(_cell(column, columns[column]) for column in TABLE)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def terminal_table(jobs: Sequence[Job], title: str) -> Table:
    """The final table for the terminal."""
    caption = (
        "held-out questions, greedy; mean ± half of the 95 % interval over seeds; searches per question, gain in nats"
    )
    rows = [
        [algorithm, str(columns["em"].count), *(_cell(column, columns[column], digits=2) for column in TABLE)]
        for algorithm, columns in final_intervals(jobs).items()
    ]
    return table(["algorithm", "seeds", *(TITLES[column] for column in TABLE)], rows, title=title, caption=caption)


def _cell(column: str, interval: Interval, digits: int = 3) -> str:
    if math.isnan(interval.mean):
        return "–"
    if column == "seconds":
        return f"{interval.mean:.0f}"
    return f"{interval:.{digits}f}"


def _bounds(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "count": interval.count}
