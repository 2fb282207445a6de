"""Runs of stable-baselines3 side by side: curves over seeds, the random agent, and what information gain in the reward
changes.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from a2tgpo.baselines.sb3.train import Curve, Sb3Settings, Worlds, algorithm_of, random_score, required, train
from a2tgpo.config import EnvironmentSettings
from a2tgpo.display.curves import Line, Panel, draw
from a2tgpo.files import write_csv
from a2tgpo.means import Interval

REWARDS = {False: "outcome", True: "outcome + gain"}
"""Is information gain in the reward? → name."""


@dataclass(frozen=True, slots=True)
class Sb3Study:
    """What came out."""

    curves: tuple[Curve, ...]
    random_em: float

    def of_weight(self, with_gain: bool) -> list[Curve]:
        """The curves with or without information gain, in the order of their seeds."""
        return [curve for curve in self.curves if (curve.settings.gain_weight != 0) == with_gain]

    @property
    def final_difference(self) -> Interval:
        """Final EM with gain less that without, paired by seed."""
        pairs = zip(self.of_weight(True), self.of_weight(False), strict=True)
        return Interval.over_seeds([gain.em[-1] - plain.em[-1] for gain, plain in pairs])

    @property
    def area_difference(self) -> Interval:
        """The same of the mean EM over the curve: which learns earlier."""
        pairs = zip(self.of_weight(True), self.of_weight(False), strict=True)
        return Interval.over_seeds([float(np.mean(gain.em[1:]) - np.mean(plain.em[1:])) for gain, plain in pairs])


def run(
    settings: Sb3Settings,
    environment: EnvironmentSettings,
    seeds: Sequence[int],
    gain_weights: Sequence[float],
    workers: int,
    tensorboard: Path | None,
) -> Sb3Study:
    """Train every seed with every gain weight, `workers` at a time; a single worker shows SB3's progress bars.

    Raises:
        ImportError: naming the pip command, if stable-baselines3 is not installed.
        ConfigError: for an unknown algorithm.
    """
    required(algorithm_of(settings.algorithm).module)
    jobs = [replace(settings, seed=seed, gain_weight=weight) for weight in gain_weights for seed in seeds]
    arguments = [(job, environment, tensorboard, workers == 1) for job in jobs]
    if workers == 1:
        curves = [_train(*each) for each in arguments]
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            curves = list(pool.map(_train, *zip(*arguments, strict=True)))
    worlds = _worlds(environment)
    return Sb3Study(
        tuple(curves), random_score(worlds.evaluation(), worlds.held_out.questions[: settings.evaluate_questions])
    )


def _train(settings: Sb3Settings, environment: EnvironmentSettings, tensorboard: Path | None, progress: bool) -> Curve:
    import torch

    torch.set_num_threads(1)  # the networks are far too small for more
    return train(settings, _worlds(environment), tensorboard, progress)


@cache
def _worlds(environment: EnvironmentSettings) -> Worlds:
    """Made once per process."""
    return Worlds.of(environment)


def write_study(study: Sb3Study, folder: Path) -> None:
    """Write `curves.csv` (a row per run and point) and `curves.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(
        folder / "curves.csv",
        ["algorithm", "gain_weight", "seed", "step", "em", "searches"],
        (
            [curve.settings.algorithm, curve.settings.gain_weight, curve.settings.seed, *point]
            for curve in study.curves
            for point in zip(curve.steps, curve.em, curve.searches, strict=True)
        ),
    )
    lines = {}
    for with_gain, name in REWARDS.items():
        if curves := study.of_weight(with_gain):
            lines[name] = Line.over_seeds([dict(zip(curve.steps, curve.em, strict=True)) for curve in curves])
    title = f"{study.curves[0].settings.algorithm}: exact match, held out, greedy"
    panel = Panel(title, "environment steps", lines, {"random actions": study.random_em}, zero=True)
    draw([panel], folder / "curves.png")


def summary(study: Sb3Study) -> Mapping[str, str]:
    """The findings as (what, finding) lines."""
    lines = {"random agent": f"EM {study.random_em:.3f}"}
    for with_gain, label in REWARDS.items():
        finals = [curve.em[-1] for curve in study.of_weight(with_gain)]
        if finals:
            each = ", ".join(f"{value:.3f}" for value in finals)
            lines[label] = (
                f"EM {np.mean(finals):.3f} over {len(finals)} seeds ({each}),"
                f" {np.mean(finals) / max(study.random_em, 1e-9):.1f} times random"
            )
    if study.of_weight(True) and study.of_weight(False):
        lines["effect of gain, final EM"] = finding(study.final_difference)
        lines["effect of gain, mean EM over the curve"] = finding(study.area_difference)
    return lines


def finding(difference: Interval) -> str:
    """A difference that gain makes, and what may be said of it."""
    if math.isnan(difference.half):
        return (
            f"{difference.mean:+.3f} ({difference.count} seed{'s' * (difference.count > 1)}: too few to say anything)"
        )
    call = "no difference can be told"
    if not difference.low <= 0 <= difference.high:
        call = "gain helps" if difference.mean > 0 else "gain hurts"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]: {call}"
