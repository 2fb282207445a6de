"""Run a study: contenders × seeds from one shared start, side by side in worker processes."""

import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from a2tgpo.config import Recipe, to_toml
from a2tgpo.display.lines import say
from a2tgpo.files import write_text
from a2tgpo.run_folder.lock import InUseError, claim
from a2tgpo.run_folder.resume import check_same_recipe
from a2tgpo.start.prepare import cache_key, prepare_model
from a2tgpo.start.recipe_checks import check_recipes
from a2tgpo.studies.comparable import check_comparable
from a2tgpo.studies.gpus import gpus_of_run, take_gpus
from a2tgpo.studies.progress import progress
from a2tgpo.studies.study import CRASHED, Job, jobs_of, usable
from a2tgpo.studies.summary import print_summary, write_summary
from a2tgpo.studies.workers import GRACE, Signals, WorkerTask, signals_counted, work_off
from a2tgpo.training.parts import limit_threads

PATIENCE: Final = 2 * GRACE
"""Seconds in which a run's folder must be free. A study that was killed leaves workers that are still saving."""


class StoppedError(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped the study; the message is for people.

    Args:
        interrupted: was it Ctrl-C?
    """

    def __init__(self, message: str, *, interrupted: bool) -> None:
        super().__init__(message)
        self.interrupted = interrupted


def compare(recipe: Recipe, runs: Path, console: Console) -> list[Job]:
    """Train every run of the study that is not finished yet, then write and print what they say together.

    A run that crashes is listed and left out, the others continue; the same call tries it again. Ctrl-C and SIGTERM let
    the runs in progress finish their step and save, and the summary of the finished runs is written; a second one kills
    the runs in progress. The same call resumes the study, whatever ended it.

    Raises:
        ConfigError: before any run starts, if the recipe cannot be used, runs that are there have other settings or
            cannot be compared, or another process works on the study; afterwards, if the new runs cannot be compared.
        StoppedError: if a signal stopped the study.
    """
    folder = runs / recipe.name
    jobs = jobs_of(recipe, folder)
    envs = check_recipes(job.recipe for job in jobs if not job.finished)
    for job in jobs:
        check_same_recipe(job.recipe, job.folder)
    check_comparable([job for job in jobs if job.finished], recipe.study.allow)
    limit_threads(recipe.model.threads)
    with claim(folder):
        waiting = [job for job in jobs if not job.finished]
        models = {
            key: prepare_model(start, runs, console)
            for key, start in {cache_key(job.recipe): job.recipe for job in waiting}.items()
        }
        del envs  # the warm start has shared their indices
        write_text(folder / "study.toml", to_toml(recipe))
        if len(waiting) < len(jobs):
            say(console, f"{len(jobs) - len(waiting)} of {len(jobs)} runs are already finished in {folder}")
        with signals_counted() as signals:
            _train_all(waiting, models, recipe.study.workers, signals, console)
            if signals.count < 2:
                _sum_up(recipe, jobs, folder, console, quiet=signals.count > 0)
            if signals.count:
                done = sum(job.finished for job in jobs)
                raise StoppedError(
                    f"stopped: {done} of {len(jobs)} runs are finished; the same command resumes the study",
                    interrupted=signals.interrupted,
                )
    return jobs


def _train_all(
    jobs: Sequence[Job], models: Mapping[str, Path], workers: int, signals: Signals, console: Console
) -> None:
    if not jobs:
        return
    tasks = [WorkerTask(job.name, train_job, (job, models[cache_key(job.recipe)])) for job in jobs]
    by_name = {job.name: job for job in jobs}
    each = max(gpus_of_run(job.recipe.model.device) for job in jobs)
    with progress(jobs, console) as tick:
        work_off(
            tasks,
            workers,
            signals,
            set_up=partial(take_gpus, each),
            tick=tick,
            lost=lambda task, code: _note_lost(by_name[task.name], code),
        )


def train_job(job: Job, model_folder: Path) -> None:
    """One run, in a worker process. What ends it is written to its folder, so that the others continue and the study
    can say what is missing.
    """
    from a2tgpo.training.loop import train

    _wait_until_free(job.folder)
    (job.folder / CRASHED).unlink(missing_ok=True)
    try:
        train(job.recipe, job.folder, model_folder, progress=lambda _kind, _step, _values: None)
    except Exception:
        _note(job, traceback.format_exc())


def _wait_until_free(folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with claim(folder):
                return
        except InUseError:
            time.sleep(0.2)


def _note_lost(job: Job, code: int) -> None:
    """A worker that dies can write nothing down."""
    if not job.finished:
        why = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        hint = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
        _note(job, f"its process was ended {why}{hint}; call the same study again to resume it\n")


def _note(job: Job, text: str) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    write_text(job.folder / CRASHED, text)


def _sum_up(recipe: Recipe, jobs: list[Job], folder: Path, console: Console, *, quiet: bool) -> None:
    """Write what the finished runs say and, unless `quiet`, print it with the runs that are left out."""
    good = usable(jobs)
    if good:
        check_comparable(good, recipe.study.allow)
        write_summary(recipe, good, folder)
    if not quiet:
        for job in jobs:
            if job.problem:
                say(console, f"left out: {job.name}: {job.problem}")
        if good:
            print_summary(recipe, good, folder, console)
