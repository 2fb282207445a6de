"""The charts of a study's report."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from a2tgpo.report import svg
from a2tgpo.report.svg import Point
from a2tgpo.run_folder.log import mean, read_metrics
from a2tgpo.studies.study import Interval, Job, curve, labels_of

PHASES = ("rollout", "gain", "update", "evaluation")
WINDOW = 5
"""Steps that a point of a training curve averages over; a single step holds few questions."""
MAX_TURNS = 7


def learning_curves(jobs: Sequence[Job]) -> str:
    """Held-out scores over training: mean over seeds with the 95 % interval as a band."""
    titles = {
        "em": "exact match",
        "f1": "F1",
        "searches": "searches per question",
        "gain_per_turn": "information gain per turn (nats)",
    }
    charts = []
    for metric, title in titles.items():
        points = {name: _points(curve(jobs, name, metric)) for name in labels_of(jobs)}
        charts.append(svg.lines(points, f"{title}, held out", "training step", zero=metric == "em"))
    return svg.legend(labels_of(jobs)) + _grid(charts)


def gain_per_turn(jobs: Sequence[Job]) -> str:
    """Mean information gain of the searches at each turn index, over training."""
    names = [f"turn {turn}" for turn in range(MAX_TURNS)]
    charts, used = [], 0
    for name in labels_of(jobs):
        by_turn = {turn: curve(jobs, name, f"gain_turn_{turn}", "train") for turn in range(MAX_TURNS)}
        used = max([used, *(turn + 1 for turn, points in by_turn.items() if points)])
        charts.append(
            svg.lines(
                {names[turn]: _smooth(points) for turn, points in by_turn.items()}, name, "training step", zero=True
            )
        )
    return svg.legend(names[:used]) + _grid(charts)


def clip_scales(jobs: Sequence[Job]) -> str:
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
    shares = {name: svg.histogram(values, low, high, 24) for name, values in varied.items()}
    chart = svg.lines(
        shares,
        "share of search turns, last logged step",
        "clip scale (1 = the plain clip range)",
        zero=True,
        colors=colors,
    )
    ranges = {
        name: [
            Point(step, mean(scales), mean(lows), mean(highs)) for step, scales, lows, highs in _clip_ranges(jobs, name)
        ]
        for name in varied
    }
    return svg.legend(labels_of(jobs)) + _grid(
        [chart, svg.lines(ranges, "middle, smallest and largest clip scale", "training step", colors=colors)]
    )


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


def time_split(jobs: Sequence[Job]) -> str:
    """Seconds of a run by what they were spent on, mean over seeds."""
    rows: dict[str, dict[str, float]] = {}
    for name in labels_of(jobs):
        spent = [_seconds(job) for job in jobs if job.label == name]
        rows[name] = {phase: mean(run[phase] for run in spent) if spent else 0.0 for phase in PHASES}
    return svg.legend(PHASES).replace('class="legend"', 'class="legend plain"') + _grid(
        [svg.stacked(rows, "seconds of a run", "seconds")]
    )


def _points(values: Mapping[int, Sequence[float]]) -> list[Point]:
    intervals = {step: Interval.of(found) for step, found in values.items()}
    return [Point(step, interval.mean, interval.low, interval.high) for step, interval in intervals.items()]


def _smooth(values: Mapping[int, Sequence[float]]) -> list[Point]:
    """Mean over seeds and over a centred window of steps."""
    half = WINDOW // 2
    return [
        Point(step, mean(value for other in range(step - half, step + half + 1) for value in values.get(other, ())))
        for step in values
    ]


def _last_clip_scales(job: Job) -> list[float]:
    files = sorted((job.folder / "episodes").glob("step-*.jsonl"))
    episodes = [json.loads(line) for line in files[-1].read_text(encoding="utf-8").splitlines()] if files else []
    turns = (turn for episode in episodes for turn in episode["turns"])
    return [
        turn["clip_scale"]
        for turn in turns
        if turn["information_gain"] is not None and turn.get("clip_scale") is not None
    ]


def _clip_ranges(jobs: Sequence[Job], name: str) -> list[tuple[int, list[float], list[float], list[float]]]:
    lows, highs = (curve(jobs, name, f"clip_scale_{end}", "train") for end in ("min", "max"))
    return [
        (step, [(low + high) / 2 for low, high in zip(lows[step], highs[step], strict=True)], lows[step], highs[step])
        for step in lows
        if step in highs
    ]


def _searches(jobs: Sequence[Job], name: str, place: int) -> Counter[int]:
    counter: Counter[int] = Counter()
    for job in jobs:
        files = sorted((job.folder / "evaluations").glob("step-*.jsonl")) if job.label == name else []
        if files:
            counter.update(
                int(json.loads(line)["searches"]) for line in files[place].read_text(encoding="utf-8").splitlines()
            )
    return counter


def _seconds(job: Job) -> dict[str, float]:
    spent = dict.fromkeys(PHASES, 0.0)
    for row in read_metrics(job.folder):
        for phase in PHASES:
            value = row.get(f"seconds_{phase}", 0.0)
            spent[phase] += 0.0 if math.isnan(value) else value
    return spent


def _grid(charts: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(charts)}</div>'
