"""The figures of the A2TGPO paper (arXiv 2605.06200) from a study's recorded runs: `a2tgpo report STUDY --paper`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from a2tgpo.display import curves
from a2tgpo.display.curves import COLORS, Line, Panel
from a2tgpo.report import paper_frames as frames
from a2tgpo.studies.study import Job

WINDOW: Final = 5
"""Steps that a point of a training curve averages over."""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One figure of the paper."""

    number: int
    title: str
    frame: Callable[[Sequence[Job]], pd.DataFrame]
    draw: Callable[[pd.DataFrame, Path], None]
    needs: str
    """What a study must have for it, said where it is missing."""


def write_paper_figures(jobs: Sequence[Job], folder: Path) -> list[str]:
    """Write `figure-N.png` and `figure-N.csv` for every figure that the runs hold the numbers of.

    Args:
        jobs: usable runs of a study.

    Returns:
        One line per figure: the file, or what is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for figure in FIGURES:
        frame, path = figure.frame(jobs), folder / f"figure-{figure.number}.png"
        if frame.empty:
            lines.append(f"figure {figure.number} ({figure.title}): left out, needs {figure.needs}")
            continue
        figure.draw(frame, path)
        frame.to_csv(path.with_suffix(".csv"), index=False)
        lines.append(f"figure {figure.number} ({figure.title}): {path}")
    return lines


def draw_similarity(frame: pd.DataFrame, path: Path) -> None:
    """Bars per turn index: pairs at the same index beside pairs at different ones; one panel per algorithm."""
    names = list(frame["algorithm"].unique())
    figure, axes = _panels(1, len(names))
    for axis, name in zip(axes[0], names, strict=True):
        mine = frame[frame["algorithm"] == name]
        turns = sorted(mine["turn"].unique())
        for place, label in enumerate(("same turn index", "other turn index")):
            chosen = mine[(mine["turn"] == mine["other"]) == (place == 0)]
            total = (chosen["similarity"] * chosen["pairs"]).groupby(chosen["turn"]).sum()
            means = total / chosen["pairs"].groupby(chosen["turn"]).sum()
            heights = [means.get(turn, 0.0) for turn in turns]
            axis.bar([turn + 0.4 * place - 0.2 for turn in turns], heights, 0.38, color=COLORS[place], label=label)
        axis.set(title=name, xlabel="turn", xticks=turns, ylim=(0, 1))
    axes[0][0].set_ylabel("Jaccard similarity")
    _finish(figure, axes[0][0], path)


def draw_curves(frame: pd.DataFrame, path: Path) -> None:
    """One panel per metric, a line per algorithm."""
    panels = []
    for metric in frame["metric"].unique():
        lines = {}
        for name in frame["algorithm"].unique():
            chosen = frame[(frame["metric"] == metric) & (frame["algorithm"] == name)]
            runs = [dict(zip(run["step"], run["value"], strict=True)) for _, run in chosen.groupby("seed")]
            lines[name] = Line.over_seeds(runs, WINDOW)
        panels.append(Panel(metric, "training step", lines))
    curves.draw(panels, path)


def draw_boxes(frame: pd.DataFrame, path: Path) -> None:
    """Box plots per turn: a row per algorithm, a column per quantity."""
    names, quantities = list(frame["algorithm"].unique()), list(frame["quantity"].unique())
    figure, axes = _panels(len(names), len(quantities))
    for row, name in zip(axes, names, strict=True):
        for axis, quantity in zip(row, quantities, strict=True):
            chosen = frame[(frame["algorithm"] == name) & (frame["quantity"] == quantity)]
            turns = sorted(chosen["turn"].unique())
            values = [chosen[chosen["turn"] == turn]["value"] for turn in turns]
            axis.boxplot(values, tick_labels=turns, showfliers=False)
            axis.axhline(0, color="black", linewidth=0.6)
            axis.set(title=f"{name}: {quantity}", xlabel="turn")
    figure.savefig(path, dpi=130)


def draw_stacks(frame: pd.DataFrame, path: Path) -> None:
    """Seconds of a step, stacked by phase; an algorithm a row."""
    figure, [[axis]] = _panels(1, 1)
    table = frame.pivot_table(index="algorithm", columns="phase", values="seconds", sort=False)
    table.plot.barh(stacked=True, ax=axis, color=list(COLORS))
    axis.set(xlabel="seconds per training step", ylabel="")
    axis.invert_yaxis()
    _finish(figure, axis, path)


def draw_sweep(frame: pd.DataFrame, path: Path) -> None:
    """Score over an option: a point per seed, a line through the means."""
    figure, [[axis]] = _panels(1, 1)
    axis.scatter(frame["option"], frame["em"], color=COLORS[0], alpha=0.4, s=14, label="one seed")
    means = frame.groupby("option")["em"].mean()
    axis.plot(means.index, means.to_numpy(), color=COLORS[0], marker="o", label="mean over seeds")
    axis.set(xlabel="β (clip_modulation)", ylabel="exact match (held out, greedy)")
    axis.grid(alpha=0.3)
    _finish(figure, axis, path)


def draw_counts(frame: pd.DataFrame, path: Path) -> None:
    """Share of questions by number of searches, a bar per algorithm."""
    figure, [[axis]] = _panels(1, 1)
    table = frame.pivot_table(index="searches", columns="algorithm", values="share", sort=False).sort_index()
    table.plot.bar(ax=axis, color=list(COLORS), rot=0)
    axis.set(xlabel="searches", ylabel="share of held-out questions")
    _finish(figure, axis, path)


def _panels(rows: int, columns: int) -> tuple[Figure, "np.ndarray[tuple[int, int], np.dtype[np.object_]]"]:
    figure = Figure(figsize=(max(5.0, 3.8 * columns), 3.0 * rows + 0.4), layout="constrained")
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False))


def _finish(figure: Figure, axis: Axes, path: Path) -> None:
    axis.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)


CURVES: Final = {"entropy": "entropy (nats)", "em": "exact match (training episodes)"}
ADVANTAGES: Final = {"advantage_min": "smallest", "advantage_mean": "mean", "advantage_max": "largest"}
LENGTHS: Final = {"action_tokens_min": "shortest", "action_tokens": "mean", "action_tokens_max": "longest"}
STEPS: Final = "runs that log these metrics"

FIGURES: Final = (
    PaperFigure(1, "context similarity per turn index", frames.context_similarity, draw_similarity, "episodes"),
    PaperFigure(
        3, "entropy and accuracy", partial(frames.training_curves, metrics=CURVES), draw_curves, "training steps"
    ),
    PaperFigure(
        4, "from gain to advantage per turn", frames.gain_to_advantage, draw_boxes, "an algorithm that reads gains"
    ),
    PaperFigure(5, "advantage of a turn", partial(frames.training_curves, metrics=ADVANTAGES), draw_curves, STEPS),
    PaperFigure(7, "seconds of a training step", frames.time_split, draw_stacks, "training steps"),
    PaperFigure(8, "sampled tokens per episode", partial(frames.training_curves, metrics=LENGTHS), draw_curves, STEPS),
    PaperFigure(
        9,
        "held-out score over β",
        partial(frames.final_scores, option="clip_modulation"),
        draw_sweep,
        "contenders with at least three values of clip_modulation (the recipe beta-sweep)",
    ),
    PaperFigure(10, "number of searches", frames.search_counts, draw_counts, "an evaluation"),
)
"""Tables 1, 2 and 4 are studies and evaluations, figures 2 and 6 texts: see docs/reproduction.md."""
