"""Run a study: algorithms × seeds from one shared start, side by side in worker processes."""

import multiprocessing
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from a2tgpo.build import limit_threads
from a2tgpo.config import Recipe, to_toml
from a2tgpo.models import prepare_model
from a2tgpo.runlog import read_metrics, write_text
from a2tgpo.study import Job, jobs_of
from a2tgpo.summary import terminal_table, write_summary

POLL_SECONDS = 0.5


def compare(recipe: Recipe, runs: Path, console: Console) -> list[Job]:
    """Train every run of the study that is not finished yet, then write and print what they say together.

    Stopped with Ctrl-C, it writes the summary of the runs that are finished; the same call goes on where it stopped.

    Raises:
        ConfigError: before any run starts, if the recipe cannot be used.
    """
    folder = runs / recipe.name
    jobs = jobs_of(recipe, folder)
    limit_threads(recipe.model.threads)
    model_folder = prepare_model(recipe, runs, console)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "study.toml", to_toml(recipe))
    waiting = [job for job in jobs if not job.finished]
    if len(waiting) < len(jobs):
        console.print(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are already finished in {folder}")
    try:
        _train_all(waiting, model_folder, recipe.study.workers, console)
    finally:
        if any(job.finished for job in jobs):
            write_summary(jobs, folder)
            console.print(terminal_table(jobs, f"study {recipe.name}"))
            console.print(f"curves: {folder / 'learning-curves.png'}   numbers: {folder / 'summary.csv'}, .json, .md")
    return jobs


def _train_all(jobs: list[Job], model_folder: Path, workers: int, console: Console) -> None:
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    columns = (TextColumn("{task.description:<14}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.fields[score]}"))
    with (
        ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context, initializer=_ignore_interrupt) as pool,
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars,
    ):
        futures = {job.name: pool.submit(train_job, job, model_folder) for job in jobs}
        total = bars.add_task("study", total=sum(job.recipe.training.steps for job in jobs), score="")
        tasks = {job.name: bars.add_task(job.name, total=job.recipe.training.steps, score="waiting", start=False) for job in jobs}
        try:
            while any(not future.done() for future in futures.values()):
                time.sleep(POLL_SECONDS)
                _show(jobs, futures, bars, tasks, total)
        except KeyboardInterrupt:
            console.print("stopping: runs in progress end at once, finished ones are kept")
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        for future in futures.values():
            future.result()


def _show(jobs: list[Job], futures: dict[str, Future[None]], bars: Progress, tasks: dict[str, TaskID], total: TaskID) -> None:
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
    """One run, in a worker process."""
    from a2tgpo.train import train

    train(job.recipe, job.folder, model_folder, progress=lambda _kind, _step, _values: None)


def _ignore_interrupt() -> None:
    """Ctrl-C reaches the whole process group; the parent decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
