"""What a study leaves for people: a table, what it says in words, learning curves, and the same numbers as CSV, JSON
and Markdown.
"""

import csv
import io
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from a2tgpo.config import Recipe
from a2tgpo.files import write_text
from a2tgpo.run_folder.log import mean
from a2tgpo.studies.study import TABLE, Interval, Job, curve, final_values, labels_of, table, usable
from a2tgpo.studies.verdicts import as_json, statistics_of, words

TITLES = {"em": "EM", "f1": "F1", "searches": "searches", "gain_per_turn": "gain/turn", "seconds": "seconds"}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, distinguishable for colour-blind readers."""
MARKERS = "osD^vPX"


def write_summary(recipe: Recipe, jobs: Sequence[Job], folder: Path) -> None:
    """Write `summary.csv`, `.json`, `.md`, `statistics.json`, `learning-curves.png` and `gain-per-turn.png`."""
    rows = list(final_values(jobs))
    text = io.StringIO()
    names = sorted({name for _, _, values in rows for name in values if name not in ("kind", "step")})
    writer = csv.writer(text)
    writer.writerow(["algorithm", "seed", *names])
    writer.writerows(
        [algorithm, seed, *(values.get(name, math.nan) for name in names)] for algorithm, seed, values in rows
    )
    write_text(folder / "summary.csv", text.getvalue())
    summary = {
        algorithm: {column: _json(interval) for column, interval in columns.items()}
        for algorithm, columns in table(jobs).items()
    }
    write_text(
        folder / "summary.json",
        json.dumps({"interval": "95 %, Student t over seeds", "algorithms": summary}, indent=1) + "\n",
    )
    statistics = statistics_of(recipe, jobs)
    write_text(folder / "statistics.json", json.dumps(as_json(statistics), indent=1) + "\n")
    write_text(folder / "summary.md", markdown(jobs) + "\n" + "".join(f"- {line}\n" for line in words(statistics)))
    draw_curves(jobs, folder / "learning-curves.png")
    draw_gains(jobs, folder / "gain-per-turn.png")


def print_summary(recipe: Recipe, jobs: Sequence[Job], folder: Path, console: Console) -> None:
    """The table, one line per comparison, and where the rest is."""
    console.print(terminal_table(jobs, f"study {recipe.name}"))
    for line in words(statistics_of(recipe, jobs)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if recipe.study.allow:
        console.print(
            f"allowed to differ between runs: {', '.join(recipe.study.allow)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    where = (
        f"curves: {folder / 'learning-curves.png'}   numbers: {folder / 'summary.csv'}, .json, .md   all of it: a2tgpo"
        f" report {shlex.quote(str(folder))}"
    )
    console.print(where, highlight=False, markup=False, soft_wrap=True)


def markdown(jobs: Sequence[Job]) -> str:
    """The final table in Markdown: mean ± half of the 95 % interval over seeds."""
    lines = [
        "| algorithm | seeds | " + " | ".join(TITLES[column] for column in TABLE) + " |",
        "|---" * (len(TABLE) + 2) + "|",
    ]
    for algorithm, columns in table(jobs).items():
        lines.append(
            f"| {algorithm} | {columns['em'].count} | "
            + " | ".join(_cell(column, columns[column]) for column in TABLE)
            + " |"
        )
    return "\n".join(lines) + "\n"


def terminal_table(jobs: Sequence[Job], title: str) -> Table:
    """The final table for the terminal."""
    caption = (
        "held-out questions, greedy; mean ± half of the 95 % interval over seeds; searches per question, gain in nats"
    )
    result = Table(title=Text(title), caption=caption, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("algorithm", "seeds", *(TITLES[column] for column in TABLE)):
        result.add_column(name, justify="left" if name == "algorithm" else "right")
    for algorithm, columns in table(jobs).items():
        result.add_row(
            algorithm, str(columns["em"].count), *(_cell(column, columns[column], digits=2) for column in TABLE)
        )
    return result


def draw_curves(jobs: Sequence[Job], path: Path) -> None:
    """Learning curves on held-out questions: mean over seeds, band = 95 % interval."""
    panels = {
        "em": "exact match (held out, greedy)",
        "searches": "searches per question",
        "gain_per_turn": "information gain per turn (nats)",
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.8), constrained_layout=True)
    jobs = usable(jobs)
    for axis, (metric, title) in zip(axes, panels.items(), strict=True):
        for index, algorithm in enumerate(labels_of(jobs)):
            points = {step: Interval.of(values) for step, values in curve(jobs, algorithm, metric).items()}
            color, steps = COLORS[index % len(COLORS)], list(points)
            axis.plot(
                steps,
                [point.mean for point in points.values()],
                color=color,
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                label=algorithm,
            )
            axis.fill_between(
                steps,
                [point.low for point in points.values()],
                [point.high for point in points.values()],
                color=color,
                alpha=0.12,
            )
        axis.set(title=title, xlabel="training step")
        axis.grid(alpha=0.3)
    axes[0].set_ylim(0, 1)
    axes[0].legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_gains(jobs: Sequence[Job], path: Path, turns: int = 4, smooth: int = 5) -> None:
    """Information gain of the first turns over training, mean over seeds and `smooth` steps; one panel per
    algorithm.
    """
    jobs = usable(jobs)
    figure, axes = plt.subplots(
        1,
        len(labels_of(jobs)),
        figsize=(3.4 * len(labels_of(jobs)), 3.4),
        sharey=True,
        squeeze=False,
        constrained_layout=True,
    )
    for axis, algorithm in zip(axes[0], labels_of(jobs), strict=True):
        for turn in range(turns):
            points = [
                (step, mean(values)) for step, values in curve(jobs, algorithm, f"gain_turn_{turn}", "train").items()
            ]
            windows = [points[start : start + smooth] for start in range(0, len(points) - smooth + 1)]
            steps, gains = ([mean(point[place] for point in window) for window in windows] for place in (0, 1))
            axis.plot(steps, gains, color=COLORS[turn], label=f"turn {turn + 1}")
        axis.set(title=algorithm, xlabel="training step")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("information gain (nats)")
    axes[0][0].legend(frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _cell(column: str, interval: Interval, digits: int = 3) -> str:
    if math.isnan(interval.mean):
        return "–"
    if column == "seconds":
        return f"{interval.mean:.0f}"
    return f"{interval:.{digits}f}"


def _json(interval: Interval) -> dict[str, float | None]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(interval).items()
    }
