"""A study on disk: which runs it has, and what became of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from a2tgpo.config import Recipe, load_recipe
from a2tgpo.errors import ConfigError
from a2tgpo.means import Interval
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.run_folder.resume import is_finished
from a2tgpo.studies.contenders import contenders_of, label

TABLE = ("em", "f1", "searches", "gain_per_turn", "seconds")
"""Columns of the final table: exact match and F1 (0 … 1), searches per question, information gain per scored turn
(nats), seconds of the run.
"""
CRASHED = "crashed"
"""File in a run's folder: the error that ended it. The next attempt removes it; of a finished run it says nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a study."""

    recipe: Recipe
    folder: Path
    label: str
    """Of the contender that it belongs to."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def finished(self) -> bool:
        try:
            return is_finished(self.recipe, self.folder)
        except ConfigError:  # of a config.toml that is missing or damaged
            return False

    @property
    def problem(self) -> str:
        """Why the run's numbers cannot be used; empty if they can."""
        finished = self.finished
        if not finished and (self.folder / CRASHED).is_file():
            lines = (self.folder / CRASHED).read_text(encoding="utf-8").strip().split("\n")
            return f"crashed: {lines[-1] or 'no message'}"
        if not (self.folder / "metrics.jsonl").is_file():
            return "finished, but metrics.jsonl is missing" if finished else "not started"
        try:
            rows = read_metrics(self.folder)
        except ConfigError as error:
            return f"damaged: {error}"
        if not finished and (self.folder / "finished").exists():
            return "finished, but its config.toml is missing, damaged, or of a shorter run"
        if not finished:
            return f"not finished: step {int(rows[-1]['step']) if rows else 0} of {self.recipe.training.steps}"
        evaluations = [row for row in rows if row["kind"] == "evaluation"]
        if not evaluations:
            return "finished, but metrics.jsonl has no evaluation"
        if math.isnan(evaluations[-1].get("em", math.nan)):
            return "finished, but its last evaluation has no number for em"
        return ""


def jobs_of(recipe: Recipe, study_folder: Path) -> list[Job]:
    """Every contender with every seed; seed by seed, so that a study that is stopped early is still balanced.

    Raises:
        ConfigError: as `contenders_of`.
    """
    contenders = contenders_of(recipe)
    return [
        Job(replace(contender.recipe, seed=seed), study_folder / f"{contender.label}-s{seed}", contender.label)
        for seed in recipe.study.seeds
        for contender in contenders
    ]


def load_study(folder: Path) -> tuple[Recipe, list[Job]]:
    """The recipe of a study on disk and its runs. A single run is a study of itself.

    Raises:
        ConfigError: if the folder is neither.
    """
    if (folder / "config.toml").is_file():
        recipe = load_recipe(folder / "config.toml")
        name = label(recipe.algorithm)
        study = replace(recipe.study, algorithms=(recipe.algorithm,), seeds=(recipe.seed,), variants={}, ablate=())
        alone = replace(recipe, name=folder.resolve().name, study=replace(study, baseline=name))
        return alone, [Job(recipe, folder.resolve(), name)]
    if not (folder / "study.toml").is_file():
        raise ConfigError(
            f"study: got {str(folder)!r}, which has neither study.toml nor config.toml; expected the folder of a study,"
            " as `a2tgpo compare` writes it, or that of a run"
        )
    recipe = load_recipe(folder / "study.toml")
    return recipe, jobs_of(recipe, folder)


def labels_of(jobs: Sequence[Job]) -> list[str]:
    """Labels of the study's contenders, in the recipe's order."""
    return list(dict.fromkeys(job.label for job in jobs))


def usable(jobs: Sequence[Job]) -> list[Job]:
    """The runs whose numbers can be used."""
    return [job for job in jobs if not job.problem]


def final_values(jobs: Sequence[Job]) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(label, seed, last evaluation with the run's seconds) of usable runs."""
    for job in jobs:
        yield (
            job.label,
            job.recipe.seed,
            {**read_metrics(job.folder, "evaluation")[-1], "seconds": run_seconds(job.folder)},
        )


def run_seconds(folder: Path) -> float:
    """Wall-clock seconds of training and evaluation, start-up left out."""
    return float(
        sum(value for row in read_metrics(folder) for name, value in row.items() if name.startswith("seconds_"))
    )


def final_intervals(jobs: Sequence[Job]) -> dict[str, dict[str, Interval]]:
    """Label → column of the final table → interval over its runs, which must be usable."""
    rows = list(final_values(jobs))
    return {
        name: {
            column: Interval.over_seeds([values.get(column, math.nan) for found, _, values in rows if found == name])
            for column in TABLE
        }
        for name in labels_of(jobs)
    }
