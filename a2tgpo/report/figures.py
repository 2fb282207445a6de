"""The charts of a study's report."""

import math
from collections import Counter
from collections.abc import Sequence

from a2tgpo.display.curves import Line, Panel, Point
from a2tgpo.files import read_json_lines
from a2tgpo.means import mean
from a2tgpo.report import svg
from a2tgpo.studies.curves import (
    History,
    end_panels,
    gain_panels,
    held_out_panels,
    hops_panels,
    training_panels,
)
from a2tgpo.studies.study import Job, labels_of

PHASES = ("rollout", "gain", "update", "evaluation")


def learning_curves(found: Sequence[History], labels: Sequence[str]) -> str:
    """Held-out scores over training: mean over seeds with the 95 % interval as a band, single seeds as thin lines."""
    panels = [*held_out_panels(found, labels), *end_panels(found, labels)]
    return _charts(panels, labels)


def by_hops(found: Sequence[History], labels: Sequence[str]) -> str:
    """Held-out exact match of the questions of each number of hops."""
    panels = hops_panels(found, labels)
    return _charts(panels, labels) if panels else '<p class="quiet">These questions have no number of hops.</p>'


def training_curves(found: Sequence[History], labels: Sequence[str]) -> str:
    """What every training step measures, averaged over a few steps."""
    return _charts(training_panels(found, labels), labels)


def gain_per_turn(found: Sequence[History], labels: Sequence[str]) -> str:
    """Mean information gain of the searches at each turn index, over training."""
    panels = gain_panels(found, labels)
    names = max((list(panel.lines) for panel in panels), key=len, default=[])
    return _charts(panels, names)


def clip_scales(jobs: Sequence[Job], metrics: Sequence[History]) -> str:
    """Distribution of the search turns' clip scales in the last logged step, where an algorithm varies them."""
    found = {
        name: [value for job in jobs if job.label == name for value in _last_clip_scales(job)]
        for name in labels_of(jobs)
    }
    varied = {name: values for name, values in found.items() if values and max(values) - min(values) > 1e-6}
    if not varied:
        return '<p class="quiet">No algorithm of this study varies its clip range from turn to turn.</p>'
    low, high = min(min(values) for values in varied.values()), max(max(values) for values in varied.values())
    colors = {name: index for index, name in enumerate(labels_of(jobs))}
    shares = Panel(
        "share of search turns, last logged step",
        "clip scale (1 = the plain clip range)",
        {name: Line(svg.histogram(values, low, high, 24)) for name, values in varied.items()},
        zero=True,
    )
    ranges = Panel(
        "middle, smallest and largest clip scale",
        "training step",
        {name: _clip_range([history for history in metrics if history.label == name]) for name in varied},
    )
    return svg.legend(labels_of(jobs)) + _grid([svg.lines(panel, colors=colors) for panel in (shares, ranges)])


def search_counts(jobs: Sequence[Job]) -> str:
    """How many searches a held-out question takes, before and after training."""
    colors = {name: index for index, name in enumerate(labels_of(jobs))}
    charts = []
    for place, title in ((0, "before training"), (-1, "after training")):
        counts = {name: _searches(jobs, name, place) for name in labels_of(jobs)}
        top = max((key for counter in counts.values() for key in counter), default=0)
        groups = {
            str(number): {name: counter[number] / max(1, counter.total()) for name, counter in counts.items()}
            for number in range(top + 1)
        }
        charts.append(svg.bars(groups, f"share of questions, {title}", "searches", colors=colors))
    return svg.legend(labels_of(jobs)) + _grid(charts)


def time_split(found: Sequence[History], labels: Sequence[str]) -> str:
    """Seconds of a run by what they were spent on, mean over seeds."""
    rows: dict[str, dict[str, float]] = {}
    for name in labels:
        spent = [_seconds(history) for history in found if history.label == name]
        rows[name] = {phase: mean(run[phase] for run in spent) if spent else 0.0 for phase in PHASES}
    return svg.legend(PHASES).replace('class="legend"', 'class="legend plain"') + _grid(
        [svg.stacked(rows, "seconds of a run", "seconds")]
    )


def _last_clip_scales(job: Job) -> list[float]:
    files = sorted((job.folder / "episodes").glob("step-*.jsonl"))
    episodes = read_json_lines(files[-1]) if files else []
    turns = (turn for episode in episodes for turn in episode["turns"])
    return [
        turn["clip_scale"]
        for turn in turns
        if turn["information_gain"] is not None and turn.get("clip_scale") is not None
    ]


def _clip_range(found: Sequence[History]) -> Line:
    """Means over runs of the smallest and largest clip scale, and of what lies in the middle between them."""
    lows, highs = ([run.run(f"clip_scale_{end}", "train") for run in found] for end in ("min", "max"))
    steps = sorted({step for run in (*lows, *highs) for step in run})
    points = []
    for step in steps:
        low, high = (mean(run[step] for run in ends if step in run) for ends in (lows, highs))
        points.append(Point(step, (low + high) / 2, low, high))
    return Line(tuple(points))


def _searches(jobs: Sequence[Job], name: str, place: int) -> Counter[int]:
    counter: Counter[int] = Counter()
    for job in jobs:
        files = sorted((job.folder / "evaluations").glob("step-*.jsonl")) if job.label == name else []
        if files:
            counter.update(int(row["searches"]) for row in read_json_lines(files[place]))
    return counter


def _seconds(history: History) -> dict[str, float]:
    spent = dict.fromkeys(PHASES, 0.0)
    for row in history.rows:
        for phase in PHASES:
            value = row.get(f"seconds_{phase}", 0.0)
            spent[phase] += 0.0 if math.isnan(value) else value
    return spent


def _charts(panels: Sequence[Panel], names: Sequence[str]) -> str:
    return svg.legend(names) + _grid([svg.lines(panel) for panel in panels])


def _grid(charts: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(charts)}</div>'
