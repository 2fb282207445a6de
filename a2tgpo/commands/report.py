"""`a2tgpo report`, `a2tgpo view`, `a2tgpo false-calls`: what a study says, shown and checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse


@dataclass(frozen=True)
class ReportOptions:
    """One self-contained HTML page about a study, with its episodes, and tables for papers."""

    study: tyro.conf.Positional[Path]
    """Folder of a study, like runs/quickstart."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .html file to write; by default report.html in the study's folder."""
    allow: tuple[str, ...] = ()
    """Manifest entries in which runs may differ; the report says so."""
    episodes: int = 1000
    """Episodes in the page, at most."""


@dataclass(frozen=True)
class ViewOptions:
    """One self-contained HTML page to browse the recorded episodes of a run."""

    run: tyro.conf.Positional[Path]
    """Folder of a run, like runs/quickstart/a2tgpo-s0."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .html file to write; by default episodes.html in the run's folder."""
    episodes: int = 1000
    """Episodes in the page, at most; the newest are kept."""


@dataclass(frozen=True)
class FalseCallsOptions:
    """How often the statistics call a difference between copies of one algorithm, and how often they see a real one, by
    simulated studies.
    """

    studies: int = 2000
    seeds: int = 5
    questions: int = 128
    contenders: int = 4
    """Algorithms of a study, the baseline included."""
    effect: float = 0.0
    """Real advantage of all others over the baseline, in logits; 0 asks for false calls."""
    seed: int = 0


def report(words: list[str], console: Console) -> int:
    """Write the report of a study."""
    options = parse(ReportOptions, words, "report")
    from a2tgpo.report import write_report

    written = write_report(options.study, options.output, options.allow, options.episodes)
    more = f" ({written.left_out} more were recorded in their files)" if written.left_out else ""
    text = (
        f"report: {written.html}, with {written.episodes} episodes{more}   tables:"
        f" {', '.join(map(str, written.tables))}"
    )
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def view(words: list[str], console: Console) -> int:
    """Write the page over a run's episodes."""
    options = parse(ViewOptions, words, "view")
    from a2tgpo.report import write_viewer

    output = options.output or options.run / "episodes.html"
    collection = write_viewer(options.run, output, options.episodes)
    more = f"; {collection.left_out} older ones are left out (--episodes)" if collection.left_out else ""
    console.print(
        f"open {output} in a browser: {len(collection.episodes)} episodes{more}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return 0


def false_calls(words: list[str], console: Console) -> int:
    """Print the call rates of simulated studies."""
    options = parse(FalseCallsOptions, words, "false-calls")
    from a2tgpo.studies.simulation import simulate

    found = simulate(
        studies=options.studies,
        seeds=options.seeds,
        questions=options.questions,
        contenders=options.contenders,
        effect=options.effect,
        seed=options.seed,
    )
    kind = "false calls" if options.effect == 0 else f"calls of a real advantage of {options.effect:g} logits"
    size = f"{options.contenders} contenders × {options.seeds} seeds × {options.questions} questions"
    console.print(f"{kind} over {options.studies} simulated studies of {size}", highlight=False)
    console.print(f"  per comparison, uncorrected:          {found.comparisons}", highlight=False)
    console.print(f"  per study, after Holm's correction:   {found.studies}", highlight=False)
    return 0
