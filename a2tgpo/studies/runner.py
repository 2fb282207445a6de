"""Run a study: contenders × seeds from one shared start, side by side in worker processes."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from a2tgpo.config import Recipe, to_toml
from a2tgpo.display.lines import say
from a2tgpo.files import write_text
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.run_folder.resume import check_same_recipe
from a2tgpo.start.preflight import check_recipe
from a2tgpo.start.prepare import cache_key, prepare_model
from a2tgpo.studies.comparable import check_comparable
from a2tgpo.studies.gpus import gpus, gpus_of_run, share
from a2tgpo.studies.study import CRASHED, Job, jobs_of, usable
from a2tgpo.studies.summary import print_summary, write_summary
from a2tgpo.training.parts import limit_threads

POLL_SECONDS = 0.5


def compare(recipe: Recipe, runs: Path, console: Console) -> list[Job]:
    """Train every run of the study that is not finished yet, then write and print what they say together.

    Stopped with Ctrl-C or SIGTERM, it writes the summary of the runs that are finished; the same call goes on where it
    stopped. A run that crashes is listed and left out, the others go on; the same call tries it again.

    Raises:
        ConfigError: before any run starts, if the recipe cannot be used, or runs that are there have other settings or
            cannot be compared; afterwards, if the new runs cannot be compared.
    """
    folder = runs / recipe.name
    jobs = jobs_of(recipe, folder)
    for job in jobs:
        check_recipe(job.recipe)
        check_same_recipe(job.recipe, job.folder)
    check_comparable([job for job in jobs if job.finished], recipe.study.allow)
    limit_threads(recipe.model.threads)
    waiting = [job for job in jobs if not job.finished]
    models = {
        key: prepare_model(start, runs, console)
        for key, start in {cache_key(job.recipe): job.recipe for job in waiting}.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "study.toml", to_toml(recipe))
    if len(waiting) < len(jobs):
        say(console, f"{len(jobs) - len(waiting)} of {len(jobs)} runs are already finished in {folder}")
    try:
        with _sigterm_stops():
            _train_all(waiting, models, recipe.study.workers, console)
    except Terminated:
        console.print("stopped: the same command goes on from here")
    finally:
        _sum_up(recipe, jobs, folder, console)
    return jobs


class Terminated(KeyboardInterrupt):
    """SIGTERM asked the study to stop."""


@contextmanager
def _sigterm_stops() -> Iterator[None]:
    """As Ctrl-C: without it the study would be gone at once and leave its runs behind, training on."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _sigint_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _sum_up(recipe: Recipe, jobs: list[Job], folder: Path, console: Console) -> None:
    """Write and print what the finished runs say, and which runs are left out."""
    for job in jobs:
        if job.problem:
            say(console, f"left out: {job.name}: {job.problem}")
    good = usable(jobs)
    if good:
        check_comparable(good, recipe.study.allow)
        write_summary(recipe, jobs, folder)
        print_summary(recipe, jobs, folder, console)


def _train_all(jobs: list[Job], models: Mapping[str, Path], workers: int, console: Console) -> None:
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    stopping = context.Event()
    each, numbers = max(gpus_of_run(job.recipe.model.device) for job in jobs), context.Value("i", 0)
    width = max(14, *(len(job.name) for job in jobs))
    texts = f"{{task.description:<{width}}}", "{task.completed:.0f}/{task.total:.0f}", "{task.fields[score]}"
    columns = (TextColumn(texts[0]), BarColumn(), *(TextColumn(text) for text in texts[1:]))
    with (
        ProcessPoolExecutor(
            min(workers, len(jobs)), mp_context=context, initializer=_set_up_worker, initargs=(stopping, numbers, each)
        ) as pool,
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars,
    ):
        # the processes that start here inherit it, so that none of them dies of a Ctrl-C before its first line
        with _sigint_ignored():
            futures = {job.name: pool.submit(train_job, job, models[cache_key(job.recipe)]) for job in jobs}
        total = bars.add_task("study", total=sum(job.recipe.training.steps for job in jobs), score="")
        tasks = {
            job.name: bars.add_task(job.name, total=job.recipe.training.steps, score="waiting", start=False)
            for job in jobs
        }
        try:
            while any(not future.done() for future in futures.values()):
                time.sleep(POLL_SECONDS)
                _show(jobs, futures, bars, tasks, total)
        except KeyboardInterrupt:
            console.print("stopping: runs in progress finish their step and save, finished ones are kept")
            stopping.set()  # the pool has handed out a job more than it has workers
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        for job in jobs:
            _note_lost(job, futures[job.name])


def _show(
    jobs: list[Job], futures: dict[str, Future[None]], bars: Progress, tasks: dict[str, TaskID], total: TaskID
) -> None:
    """Bring the bars up to date from what the runs have written."""
    done = 0
    for job in jobs:
        rows = read_metrics(job.folder) if futures[job.name].running() or futures[job.name].done() else []
        if not rows:
            continue
        bars.start_task(tasks[job.name])
        scores = [f"held-out EM {row['em']:.2f}" for row in rows if row["kind"] == "evaluation"]
        trained = [f"train {row['em']:.2f}" for row in rows if row["kind"] == "train"]
        step = int(rows[-1]["step"])
        bars.update(tasks[job.name], completed=step, score=" ".join([*scores[-1:], *trained[-1:]]))
        done += step
    bars.update(total, completed=done)


def train_job(job: Job, model_folder: Path) -> None:
    """One run, in a worker process. What ends it is written to its folder, so that the others go on and the study can
    say what is missing.
    """
    from a2tgpo.training.loop import train

    if _stopping is not None and _stopping.is_set():
        return
    (job.folder / CRASHED).unlink(missing_ok=True)
    try:
        train(job.recipe, job.folder, model_folder, progress=lambda _kind, _step, _values: None)
    except Exception:
        job.folder.mkdir(parents=True, exist_ok=True)
        write_text(job.folder / CRASHED, traceback.format_exc())


def _note_lost(job: Job, future: Future[None]) -> None:
    """A worker that was killed takes its pool along; its runs can only say so."""
    try:
        future.result()
    except BrokenProcessPool as error:
        if not job.finished:
            job.folder.mkdir(parents=True, exist_ok=True)
            write_text(
                job.folder / CRASHED,
                f"its process was killed, perhaps for want of memory ({error}); call the same study again to go on\n",
            )


_stopping: Event | None = None
"""In a worker: set when the study was told to stop."""


def _set_up_worker(stopping: Event, numbers: Any, each: int) -> None:
    """Ctrl-C reaches the whole process group; the parent decides what happens. Where runs use GPUs, every worker takes
    the next `each`.

    `numbers` is a shared integer that counts the workers.
    """
    global _stopping  # a worker has no other way to know it
    _stopping = stopping
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if each:
        with numbers:
            number, numbers.value = numbers.value, numbers.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(share(gpus(), each, number))
