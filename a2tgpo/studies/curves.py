"""Curves of a study, as its pictures and its report draw them."""

import re
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
ENDS: Final = {
    "em_sampled": "exact match, sampled, held out",
    "em_train": "exact match, training questions",
}
TRAINING: Final = {
    "em": "exact match, sampled, in training",
    "entropy": "entropy (nats per token)",
    "clip_fraction": "share of tokens that the clip stops",
    "kl_to_old": "distance to the policy before the step (nats)",
    "loss_kl": "distance to the reference policy (nats)",
    "invalid_turns": "share of invalid turns",
    "sampler_mismatch": "engine against trainer (mean nats per token)",
    "informative_groups": "share of groups with any credit",
    "grad_norm": "gradient norm before clipping",
    "failed": "share of failed episodes",
}
IF_ANY: Final = ("loss_kl", "failed")
"""Drawn only where it is ever other than 0."""


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
    return [_panel(found, labels, metric, f"{title}, held out") for metric, title in HELD_OUT.items()]


def end_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """What is only measured before and after training."""
    panels = [_panel(found, labels, metric, title) for metric, title in ENDS.items()]
    return [panel for panel in panels if any(line.points for line in panel.lines.values())]


def hops_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """Held-out exact match of the questions of each number of hops."""
    metrics = {name for history in found for row in history.rows for name in row if re.fullmatch(r"em_\d+_hops", name)}
    hops = sorted(int(name.split("_")[1]) for name in metrics)
    return [_panel(found, labels, f"em_{k}_hops", f"exact match, {k} hop{'s' * (k > 1)}") for k in hops]


def training_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """What is measured in every training step; `IF_ANY` only where it is ever other than 0."""
    panels = []
    for metric, title in TRAINING.items():
        panel = _panel(found, labels, metric, title, "train", WINDOW)
        values = [abs(point.y) for line in panel.lines.values() for point in line.points]
        if any(value > 0 for value in values) or (values and metric not in IF_ANY):
            panels.append(panel)
    return panels


def gain_panels(found: Sequence[History], labels: Sequence[str]) -> list[Panel]:
    """Mean information gain of the searches at each turn index over training, one panel per contender. Turns that fewer
    than half of the steps have are left out: the mean of a few searches would set the scale of all others.
    """
    panels = []
    for label in labels:
        steps = sum(len(run) for run in runs_of(found, label, "step", "train"))
        runs = {f"turn {turn}": runs_of(found, label, f"gain_turn_{turn}", "train") for turn in range(MAX_TURNS)}
        drawn = {
            name: Line.over_seeds(of_turn, WINDOW, spread=False)
            for name, of_turn in runs.items()
            if of_turn and 2 * sum(len(run) for run in of_turn) >= steps
        }
        panels.append(Panel(label, "training step", drawn, zero=True))
    return panels


def _panel(
    found: Sequence[History], labels: Sequence[str], metric: str, title: str, kind: str = "evaluation", window: int = 1
) -> Panel:
    lines = {label: Line.over_seeds(runs_of(found, label, metric, kind), window) for label in labels}
    return Panel(title, "training step", lines, zero=kind == "train" or metric.startswith(("em", "f1")))
