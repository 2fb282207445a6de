"""Runs of stable-baselines3 side by side: curves over seeds, the random agent, and what information gain in the reward
changes.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import matplotlib
import numpy as np
from scipy import stats

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from a2tgpo.baselines.sb3.train import Curve, Settings, Worlds, random_score, recipe_of, required, train
from a2tgpo.config import EnvironmentSettings

COLORS = ("#0072B2", "#D55E00")
"""Outcome only, outcome and gain: from Okabe and Ito's palette."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Outcome + gain against outcome only, paired by seed: mean and 95 % interval (Student t over seeds)."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(differences: Sequence[float]) -> "Difference":
        """From one difference per seed; with one seed the interval is unbounded."""
        n, mean = len(differences), float(np.mean(differences))
        half = (
            float(stats.t.ppf(0.975, n - 1)) * float(np.std(differences, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        )
        return Difference(mean, mean - half, mean + half)

    def __str__(self) -> str:
        call = (
            "no difference can be told"
            if self.low <= 0 <= self.high
            else "gain helps"
            if self.mean > 0
            else "gain hurts"
        )
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]: {call}"


@dataclass(frozen=True, slots=True)
class Sb3Study:
    """What came out."""

    curves: tuple[Curve, ...]
    random_em: float

    def of_weight(self, with_gain: bool) -> list[Curve]:
        """The curves with or without information gain, in the order of their seeds."""
        return [curve for curve in self.curves if (curve.settings.gain_weight != 0) == with_gain]

    @property
    def final_difference(self) -> Difference:
        """Of the final EM."""
        pairs = zip(self.of_weight(True), self.of_weight(False), strict=True)
        return Difference.of([gain.em[-1] - plain.em[-1] for gain, plain in pairs])

    @property
    def area_difference(self) -> Difference:
        """Of the mean EM over the curve: who learns earlier."""
        pairs = zip(self.of_weight(True), self.of_weight(False), strict=True)
        return Difference.of([float(np.mean(gain.em[1:]) - np.mean(plain.em[1:])) for gain, plain in pairs])


def run(
    settings: Settings,
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
    required(recipe_of(settings.algorithm).module)
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


def _train(settings: Settings, environment: EnvironmentSettings, tensorboard: Path | None, progress: bool) -> Curve:
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
    with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["algorithm", "gain_weight", "seed", "step", "em", "searches"])
        for curve in study.curves:
            head = [curve.settings.algorithm, curve.settings.gain_weight, curve.settings.seed]
            writer.writerows([*head, *point] for point in zip(curve.steps, curve.em, curve.searches, strict=True))
    draw(study, folder / "curves.png")


def draw(study: Sb3Study, path: Path) -> None:
    """Held-out EM over environment steps: a thin line per seed, a thick one for their mean, the random agent dashed."""
    figure, axis = plt.subplots(figsize=(6, 4), constrained_layout=True)
    for with_gain, label in ((False, "outcome"), (True, "outcome + information gain")):
        curves = study.of_weight(with_gain)
        for curve in curves:
            axis.plot(curve.steps, curve.em, color=COLORS[with_gain], alpha=0.35, linewidth=1)
        if curves:
            points = min(len(curve.em) for curve in curves)
            mean = np.mean([curve.em[:points] for curve in curves], axis=0)
            axis.plot(curves[0].steps[:points], mean, color=COLORS[with_gain], linewidth=2.5, label=label)
    axis.axhline(study.random_em, color="black", linestyle="--", linewidth=1, label="random actions")
    axis.set(
        xlabel="environment steps",
        ylabel="exact match (held out, greedy)",
        ylim=(0, 1),
        title=study.curves[0].settings.algorithm,
    )
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def summary(study: Sb3Study) -> Mapping[str, str]:
    """The findings as (what, finding) lines."""
    lines = {"random agent": f"EM {study.random_em:.3f}"}
    for with_gain, label in ((False, "outcome"), (True, "outcome + gain")):
        finals = [curve.em[-1] for curve in study.of_weight(with_gain)]
        if finals:
            each = ", ".join(f"{value:.3f}" for value in finals)
            lines[label] = (
                f"EM {np.mean(finals):.3f} over {len(finals)} seeds ({each}),"
                f" {np.mean(finals) / max(study.random_em, 1e-9):.1f} times random"
            )
    if study.of_weight(True) and study.of_weight(False):
        lines["effect of gain, final EM"] = str(study.final_difference)
        lines["effect of gain, mean EM over the curve"] = str(study.area_difference)
    return lines
