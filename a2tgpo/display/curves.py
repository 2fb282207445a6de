"""Curves over training: one line per contender, its interval as a band, its single runs as thin lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from a2tgpo.means import Interval, mean

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, distinguishable for colour-blind readers."""
_MARKERS = "osD^vPX"
_WIDTH, _HEIGHT = 3.6, 3.4
"""Inches of a panel."""

Number = int | float
Run = Mapping[int, Number]
"""Step → value."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line; bounds are NaN where there is no band."""

    x: Number
    y: Number
    low: Number = math.nan
    high: Number = math.nan


@dataclass(frozen=True, slots=True)
class Line:
    """A mean over runs, and the runs."""

    points: tuple[Point, ...]
    runs: tuple[Run, ...] = ()

    @staticmethod
    def over_seeds(runs: Sequence[Run], window: int = 1, *, spread: bool = True) -> "Line":
        """Mean and interval at every step that a run has reached.

        Args:
            runs: one per seed.
            window: steps that every value is averaged over, centred; one for none.
            spread: with the interval and the single runs; without, the mean alone.
        """
        steps = sorted({step for run in runs for step in run})
        if not spread:
            return Line(tuple(Point(step, mean(_near(runs, step, window))) for step in steps))
        smooth = tuple({step: mean(_near([run], step, window)) for step in run} for run in runs)
        found = [(step, Interval.over_seeds([run[step] for run in smooth if step in run])) for step in steps]
        return Line(tuple(Point(step, at.mean, at.low, at.high) for step, at in found), smooth)


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_title: str
    lines: Mapping[str, Line]
    """Name → line; the order decides colours and marks."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Name → value that does not change."""
    zero: bool = False
    """Does the y axis hold 0, whatever the values?"""


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels side by side as a PNG."""
    figure = Figure(figsize=(_WIDTH * max(2, len(panels)), _HEIGHT), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
    if any(panel.lines or panel.levels for panel in panels):
        figure.axes[0].legend(loc="best", frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)


def _draw(axes: Axes, panel: Panel) -> None:
    for place, (name, line) in enumerate(panel.lines.items()):
        color, steps = COLORS[place % len(COLORS)], [point.x for point in line.points]
        marker = _MARKERS[place % len(_MARKERS)] if len(steps) <= 20 else None
        axes.plot(steps, [point.y for point in line.points], color=color, marker=marker, markersize=4, label=name)
        lows, highs = [point.low for point in line.points], [point.high for point in line.points]
        axes.fill_between(steps, lows, highs, color=color, alpha=0.12)
        for run in line.runs if len(line.runs) > 1 else ():
            axes.plot(list(run), list(run.values()), color=color, alpha=0.3, linewidth=0.8)
    for name, level in panel.levels.items():
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label=name)
    axes.set_title(panel.title, fontsize="medium")
    axes.set_xlabel(panel.x_title)
    if panel.zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(alpha=0.3)


def _near(runs: Sequence[Run], step: int, window: int) -> list[Number]:
    """All values of the runs in a window of steps around one."""
    half = window // 2
    return [run[near] for run in runs for near in range(step - half, step + half + 1) if near in run]
