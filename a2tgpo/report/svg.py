"""Charts as SVG text: lines with bands, bars, stacked bars. Every mark carries its numbers as a tooltip, so nothing can
be read by colour alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from a2tgpo.display.curves import Line, Number, Panel, Point

WIDTH: Final = 460
HEIGHT: Final = 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 26, 34
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 2", "12 4")
NO_DATA = '<text x="50%" y="50%" text-anchor="middle" class="quiet">no data</text>'
MARKS = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True, slots=True)
class Axis:
    """Range of an axis and how it maps to pixels."""

    low: Number
    high: Number
    start: Number
    end: Number

    def __call__(self, value: Number) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers within the range."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / count))
        step = next(step * factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= count)
        first = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def lines(panel: Panel, *, colors: Mapping[str, int] | None = None) -> str:
    """A line chart; a line is known by colour, dashes and marks alike. Lines without a finite point are left out.

    Args:
        panel: what is drawn.
        colors: line → place in the palette; their order by default.
    """
    places = colors or {name: index for index, name in enumerate(panel.lines)}
    shown = {name: [point for point in line.points if math.isfinite(point.y)] for name, line in panel.lines.items()}
    values = [value for line in panel.lines.values() for value in _extent(line) if math.isfinite(value)]
    if not values:
        return _frame(panel.title, NO_DATA)
    xs = [point.x for points in shown.values() for point in points]
    x_axis = _axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, pad=0)
    drawn_values = [point.y for points in shown.values() for point in points]
    bottom = min([*drawn_values, 0.0]) if panel.zero else min(values)  # no interval opens an axis below 0
    y_axis = _axis(bottom, max(values), HEIGHT - BOTTOM, TOP)
    bands = "".join(_band(points, places[name], x_axis, y_axis) for name, points in shown.items())
    runs = "".join(_runs(name, line, places[name], x_axis, y_axis) for name, line in panel.lines.items())
    drawn = "".join(_line(name, points, places[name], x_axis, y_axis) for name, points in shown.items() if points)
    return _frame(panel.title, _grid(x_axis, y_axis, panel.x_title) + bands + runs + drawn)


def bars(
    groups: Mapping[str, Mapping[str, Number]], title: str, x_title: str, *, colors: Mapping[str, int] | None = None
) -> str:
    """Grouped bars: group (along x) → series → height."""
    names = list(dict.fromkeys(name for heights in groups.values() for name in heights))
    places = colors or {name: index for index, name in enumerate(names)}
    top = max((value for heights in groups.values() for value in heights.values() if math.isfinite(value)), default=0)
    if top <= 0:
        return _frame(title, NO_DATA)
    y_axis, slot = Axis(0, top * 1.05, HEIGHT - BOTTOM, TOP), (WIDTH - LEFT - RIGHT) / len(groups)
    width, parts = slot * 0.8 / max(1, len(names)), [_y_grid(y_axis)]
    for place, (group, heights) in enumerate(groups.items()):
        x = LEFT + slot * (place + 0.1)
        parts.append(
            f'<text x="{LEFT + slot * (place + 0.5):.1f}" y="{HEIGHT - BOTTOM + 14}"'
            f' text-anchor="middle">{escape(group)}</text>'
        )
        for index, name in enumerate(names):
            value = heights.get(name, 0.0)
            parts.append(
                _rectangle(
                    x + index * width,
                    y_axis(value),
                    width * 0.94,
                    y_axis(0) - y_axis(value),
                    places[name],
                    f"{name}, {group}: {value:.3g}",
                )
            )
    return _frame(title, "".join(parts) + _x_title(x_title))


def stacked(rows: Mapping[str, Mapping[str, Number]], title: str, x_title: str) -> str:
    """Horizontal stacked bars: row → part → length."""
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    total = max((sum(parts.values()) for parts in rows.values()), default=0)
    if not total > 0:
        return _frame(title, NO_DATA)
    left = 12 + 6.2 * max(len(name) for name in rows)
    x_axis, slot = Axis(0, total * 1.02, left, WIDTH - RIGHT), (HEIGHT - TOP - BOTTOM) / len(rows)
    parts = [_x_ticks(x_axis)]
    for place, (row, lengths) in enumerate(rows.items()):
        y, start = TOP + slot * (place + 0.15), 0.0
        parts.append(f'<text x="{left - 6:.1f}" y="{y + slot * 0.42:.1f}" text-anchor="end">{escape(row)}</text>')
        for index, name in enumerate(names):
            length = lengths.get(name, 0.0)
            parts.append(
                _rectangle(
                    x_axis(start),
                    y,
                    x_axis(start + length) - x_axis(start),
                    slot * 0.7,
                    index,
                    f"{row}, {name}: {length:.3g}",
                )
            )
            start += length
    return _frame(title, "".join(parts) + _x_title(x_title))


def legend(names: Sequence[str]) -> str:
    """Names with their colour, dashes and mark, in the palette's order."""
    items = []
    for index, name in enumerate(names):
        line = (
            f'<line x1="0" y1="7" x2="30" y2="7" class="line s{index % 7}"'
            f' stroke-dasharray="{DASHES[index % 7]}"/>{_mark(index, 15, 7, "")}'
        )
        items.append(
            f'<span class="key"><svg width="30" height="14" aria-hidden="true">{line}</svg> {escape(name)}</span>'
        )
    return f'<p class="legend">{"".join(items)}</p>'


def _axis(low: Number, high: Number, start: Number, end: Number, pad: Number = 0.06) -> Axis:
    if low == high:
        low, high = low - 0.5, high + 0.5
    margin = (high - low) * pad
    return Axis(low - margin if low != 0 else 0.0, high + margin, start, end)


def _frame(title: str, inner: str) -> str:
    name = escape(title)
    head = f'<text x="{LEFT}" y="14" class="title">{name}</text>'
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">{head}{inner}</svg>'


def _grid(x_axis: Axis, y_axis: Axis, x_title: str) -> str:
    return _y_grid(y_axis) + _x_ticks(x_axis) + _x_title(x_title)


def _y_grid(axis: Axis) -> str:
    return "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axis(tick):.1f}" y2="{axis(tick):.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{axis(tick) + 3.5:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in (round(value, 10) for value in axis.ticks())
    )


def _x_ticks(axis: Axis) -> str:
    ticks = (round(value, 10) for value in axis.ticks(6))
    return "".join(
        f'<text x="{axis(tick):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{tick:g}</text>' for tick in ticks
    )


def _x_title(text: str) -> str:
    return f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(text)}</text>'


def _band(points: Sequence[Point], place: int, x_axis: Axis, y_axis: Axis) -> str:
    bounded = [point for point in points if math.isfinite(point.low) and math.isfinite(point.high)]
    if len(bounded) < 2:
        return ""
    lows = [(point.x, max(point.low, y_axis.low)) for point in bounded]
    outline = [(point.x, point.high) for point in bounded] + lows[::-1]
    corners = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in outline)
    return f'<polygon class="band s{place % 7}" points="{corners}"/>'


def _extent(line: Line) -> list[Number]:
    """All values that a line needs room for."""
    singles = [value for run in line.runs for value in run.values()] if len(line.runs) > 1 else []
    return [*(value for point in line.points for value in (point.y, point.low, point.high)), *singles]


def _runs(name: str, line: Line, place: int, x_axis: Axis, y_axis: Axis) -> str:
    """The single runs; of one alone the line itself is all there is."""
    if len(line.runs) < 2:
        return ""
    paths = (
        " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in run.items() if math.isfinite(y)) for run in line.runs
    )
    return "".join(
        f'<polyline class="run s{place % 7}" points="{path}"><title>{escape(name)}, a single seed</title></polyline>'
        for path in paths
    )


def _line(name: str, points: Sequence[Point], place: int, x_axis: Axis, y_axis: Axis) -> str:
    path = " ".join(f"{x_axis(point.x):.1f},{y_axis(point.y):.1f}" for point in points)
    line = f'<polyline class="line s{place % 7}" stroke-dasharray="{DASHES[place % 7]}" points="{path}"/>'
    gap = max(1, len(points) // 12)
    tips = (
        f"{name}, {point.x:g}: {point.y:.3f}"
        + (f" ({point.low:.3f} … {point.high:.3f})" if math.isfinite(point.low) else "")
        for point in points
    )
    marks = (
        _mark(place, x_axis(point.x), y_axis(point.y), tip)
        for index, (point, tip) in enumerate(zip(points, tips, strict=True))
        if index % gap == 0
    )
    return line + "".join(marks)


def _mark(place: int, x: Number, y: Number, tip: str) -> str:
    title, kind, css = f"<title>{escape(tip)}</title>", MARKS[place % len(MARKS)], f'class="mark s{place % 7}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {css}>{title}</circle>'
    shapes = {
        "square": ((-2.7, -2.7), (2.7, -2.7), (2.7, 2.7), (-2.7, 2.7)),
        "diamond": ((0, -4), (4, 0), (0, 4), (-4, 0)),
    }
    corners = " ".join(
        f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes.get(kind, ((0, -3.6), (3.4, 2.8), (-3.4, 2.8)))
    )
    return f'<polygon points="{corners}" {css}>{title}</polygon>'


def _rectangle(x: Number, y: Number, width: Number, height: Number, place: int, tip: str) -> str:
    size = f'width="{max(0, width):.1f}" height="{max(0, height):.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="bar s{place % 7}"><title>{escape(tip)}</title></rect>'


def histogram(values: Sequence[Number], low: Number, high: Number, bins: int) -> tuple[Point, ...]:
    """Share of values per bin, at the bins' centres."""
    width, counts = (high - low) / bins, [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / width)))] += 1
    return tuple(Point(low + (index + 0.5) * width, count / max(1, len(values))) for index, count in enumerate(counts))
