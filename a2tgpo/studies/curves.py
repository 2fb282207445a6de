"""Curves of a study, as its pictures and its report draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from a2tgpo.display.curves import Line, Panel, Run
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.studies.study import Job

WINDOW: Final = 5
"""Steps that a point of a training curve averages over; a single step holds few questions."""
MAX_TURNS: Final = 7
HELD_OUT: Final = {
    "em": "exact match",
    "f1": "F1",
    "searches": "searches per question",
    "gain_per_turn": "information gain per turn (nats)",
}


@dataclass(frozen=True, slots=True)
class History:
    """The metrics of one run."""

    label: str
    rows: tuple[Mapping[str, Any], ...]

    def run(self, metric: str, kind: str = "evaluation") -> Run:
        """Step → value, where there is one."""
        return {int(row["step"]): row[metric] for row in self.rows if row["kind"] == kind and metric in row}


def histories(jobs: Sequence[Job]) -> list[History]:
    """Every run's metrics, read once."""
    return [History(job.label, tuple(read_metrics(job.folder))) for job in jobs]


def runs_of(found: Sequence[History], label: str, metric: str, kind: str = "evaluation") -> list[Run]:
    """A metric of a contender's runs, of those that have it."""
    runs = [history.run(metric, kind) for history in found if history.label == label]
    return [run for run in runs if run]


def held_out_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """Scores on held-out questions over training, every contender with its 95 % interval and its single seeds."""
    return [
        Panel(
            f"{title}, held out",
            "training step",
            {label: Line.over_seeds(runs_of(found, label, metric)) for label in labels},
            zero=metric in ("em", "f1"),
        )
        for metric, title in HELD_OUT.items()
    ]


def gain_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """Mean information gain of the searches at each turn index over training, one panel per contender."""
    panels = []
    for label in labels:
        runs = {f"turn {turn}": runs_of(found, label, f"gain_turn_{turn}", "train") for turn in range(MAX_TURNS)}
        drawn = {name: Line.over_seeds(of_turn, WINDOW, spread=False) for name, of_turn in runs.items() if of_turn}
        panels.append(Panel(label, "training step", drawn, zero=True))
    return panels
