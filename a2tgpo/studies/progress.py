"""How far a study is: bars in a terminal, one line per evaluation elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from a2tgpo.display.lines import say
from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.studies.study import Job


@contextmanager
def progress(jobs: Sequence[Job], console: Console) -> Iterator[Callable[[], None]]:
    """What to call from time to time to show what the runs have written since."""
    if console.is_terminal:
        with _bars(console, max(14, *(len(job.name) for job in jobs))) as bars:
            yield _Bars(jobs, bars)
    else:
        lines = _Lines(jobs, console)
        yield lines
        lines()


class _Bars:
    def __init__(self, jobs: Sequence[Job], bars: Progress) -> None:
        self._bars, self._jobs = bars, jobs
        self._total = bars.add_task("study", total=sum(job.recipe.training.steps for job in jobs), score="")
        self._tasks = {
            job.name: bars.add_task(job.name, total=job.recipe.training.steps, score="waiting", start=False)
            for job in jobs
        }

    def __call__(self) -> None:
        done = 0
        for job in self._jobs:
            rows = _rows(job)
            if rows:
                self._bars.start_task(self._tasks[job.name])
                step = int(rows[-1]["step"])
                self._bars.update(self._tasks[job.name], completed=step, score=_scores(rows))
                done += step
        self._bars.update(self._total, completed=done)


class _Lines:
    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self._console, self._jobs = console, jobs
        self._shown = {job.name: _last_evaluation(_rows(job)) for job in jobs}

    def __call__(self) -> None:
        for job in self._jobs:
            rows = _rows(job)
            step = _last_evaluation(rows)
            if step > self._shown[job.name]:
                self._shown[job.name] = step
                text = f"{job.name}: step {step} of {job.recipe.training.steps}, {_scores(rows)}"
                say(self._console, text)


def _bars(console: Console, width: int) -> Progress:
    texts = f"{{task.description:<{width}}}", "{task.completed:.0f}/{task.total:.0f}", "{task.fields[score]}"
    columns = (TextColumn(texts[0]), BarColumn(), *(TextColumn(text) for text in texts[1:]))
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


def _rows(job: Job) -> list[dict[str, Any]]:
    try:
        return read_metrics(job.folder)
    except ConfigError:  # damaged: the run itself will say so
        return []


def _last_evaluation(rows: Sequence[dict[str, Any]]) -> int:
    return max((int(row["step"]) for row in rows if row["kind"] == "evaluation"), default=-1)


def _scores(rows: Sequence[dict[str, Any]]) -> str:
    scores = [f"held-out EM {row['em']:.2f}" for row in rows if row["kind"] == "evaluation"]
    trained = [f"train {row['em']:.2f}" for row in rows if row["kind"] == "train"]
    return " ".join([*scores[-1:], *trained[-1:]])
