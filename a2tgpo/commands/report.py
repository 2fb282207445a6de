"""`a2tgpo report`, `a2tgpo view`, `a2tgpo false-calls`: what a study says, shown and checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.config.parsing import Range
from a2tgpo.config.settings import Count, Natural
from a2tgpo.display.lines import say
from a2tgpo.files import output_file


@dataclass(frozen=True)
class ReportOptions:
    """One self-contained HTML page about a study or a run, with its episodes, and tables for papers."""

    study: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY|RUN")]
    """Folder of a study, like runs/quickstart, or of a single run in it."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .html file to write; by default report.html in the study's folder."""
    allow: tuple[str, ...] = ()
    """Manifest entries in which runs may differ; the report says so."""
    episodes: Natural = 1000
    """Episodes in the page, at most."""
    paper: bool = False
    """Also draw the figures of the A2TGPO paper from the study's runs, into the folder `paper` beside the page."""


@dataclass(frozen=True)
class ViewOptions:
    """One self-contained HTML page to browse the recorded episodes of a run."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run, like runs/quickstart/a2tgpo-s0."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The .html file to write; by default episodes.html in the run's folder."""
    episodes: Natural = 1000
    """Episodes in the page, at most; the newest are kept."""


@dataclass(frozen=True)
class FalseCallsOptions:
    """How often the statistics call a difference between copies of one algorithm, and how often they see a real one, by
    simulated studies.
    """

    studies: Count = 2000
    """Studies that are simulated."""
    seeds: Annotated[int, Range(2)] = 5
    """Seeds of a study."""
    questions: Count = 128
    """Held-out questions of a study."""
    contenders: Annotated[int, Range(2)] = 4
    """Algorithms of a study, the baseline included."""
    effect: Annotated[float, Range()] = 0.0
    """Real advantage of all others over the baseline, in logits; 0 asks for false calls."""
    seed: Natural = 0
    """Of the simulation."""


def report(words: list[str], console: Console) -> int:
    """Write the report of a study."""
    options = parse(ReportOptions, words, "report")
    if options.study.is_dir():
        output_file("-o", options.output or options.study / "report.html")
    from a2tgpo.report import write_report

    written = write_report(options.study, options.output, options.allow, options.episodes)
    more = f" ({written.left_out} more were recorded in their files)" if written.left_out else ""
    text = (
        f"report: {written.html}, with {written.episodes} episodes{more}   tables:"
        f" {', '.join(map(str, written.tables))}"
    )
    say(console, text)
    if options.paper:
        from a2tgpo.report.paper_figures import write_paper_figures
        from a2tgpo.studies.study import load_study, usable

        for line in write_paper_figures(usable(load_study(options.study)[1]), written.html.parent / "paper"):
            say(console, line)
    return 0


def view(words: list[str], console: Console) -> int:
    """Write the page over a run's episodes."""
    options = parse(ViewOptions, words, "view")
    from a2tgpo.report import write_viewer

    output = options.output or options.run / "episodes.html"
    if options.run.is_dir():
        output_file("-o", output)
    collection = write_viewer(options.run, output, options.episodes)
    more = f"; {collection.left_out} older ones are left out (--episodes)" if collection.left_out else ""
    say(console, f"open {output} in a browser: {len(collection.episodes)} episodes{more}")
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
    say(console, f"{kind} over {options.studies} simulated studies of {size}")
    say(console, f"  per comparison, uncorrected:          {found.comparisons}")
    say(console, f"  per study, after Holm's correction:   {found.studies}")
    return 0
