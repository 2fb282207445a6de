"""The report of a study: `report.html`, `table.md`, `table.tex`."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from a2tgpo.config import Recipe
from a2tgpo.errors import ConfigError
from a2tgpo.files import write_text
from a2tgpo.report import figures, tables
from a2tgpo.report.page import page, script
from a2tgpo.report.viewer import LIMIT, Collection, block, episode_files, section
from a2tgpo.studies.comparable import Departure, check_comparable
from a2tgpo.studies.comparisons import Comparison, Statistics, statistics_of
from a2tgpo.studies.curves import WINDOW
from a2tgpo.studies.study import Job, labels_of, load_study, usable
from a2tgpo.studies.verdicts import power_sentence, words

PROTOCOL = (
    "corpus_sha256",
    "questions_sha256",
    "model_sha256",
    "decoding",
    "normalizer",
    "settings",
    "a2tgpo",
    "git_commit",
    "libraries",
    "python",
    "machine",
)


@dataclass(frozen=True, slots=True)
class Written:
    """What a report consists of."""

    html: Path
    tables: tuple[Path, ...]
    episodes: int
    left_out: int
    """Recorded episodes that the page does not hold."""


def write_report(study: Path, output: Path | None = None, allow: Sequence[str] = (), limit: int = LIMIT) -> Written:
    """Write the report of a study into its folder, or to `output` (an .html file; the tables go beside it).

    Raises:
        ConfigError: if the folder is no study, has no usable run, or its runs cannot be compared.
    """
    recipe, jobs = load_study(study)
    good = usable(jobs)
    if not good:
        problems = "\n".join(f"  {job.name}: {job.problem}" for job in jobs)
        raise ConfigError(
            f"study: got {str(study)!r} without a run that can be used, expected one at least:\n{problems}\ncontinue it"
            " with `a2tgpo compare`"
        )
    departures = check_comparable(good, [*recipe.study.allow, *allow])
    statistics, collection = statistics_of(recipe, good), _episodes(good, limit)
    html = output or study / "report.html"
    body = _body(recipe, jobs, statistics, departures) + _references(study) + "<h2>Episodes</h2>" + section()
    write_text(html, page(f"Study {recipe.name}", body, [script("viewer.js")], [block(collection)]))
    rows, compared = tables.headline(good, statistics), tables.comparisons(statistics.comparisons)
    caption = (
        f"Study {recipe.name}: held-out questions, greedy; mean ± half of the 95 % interval over seeds."
        f" {power_sentence(statistics)}"
    )
    written = []
    for name, text in {
        "table.md": f"{tables.markdown(rows)}\n{tables.markdown(compared)}\n{caption}\n",
        "table.tex": (
            tables.latex(rows, caption) + tables.latex(compared, "Paired differences, in points of exact match.")
        ),
    }.items():
        write_text(html.parent / name, text)
        written.append(html.parent / name)
    return Written(html, tuple(written), len(collection.episodes), collection.left_out)


def _episodes(jobs: Sequence[Job], limit: int) -> Collection:
    """The last logged step of every contender's first runs, an equal share of the room each."""
    collection = Collection(limit)
    first = {name: next(job for job in jobs if job.label == name) for name in labels_of(jobs)}
    for job in first.values():
        collection.add_run(job.folder, job.name, episode_files(job.folder)[:1], max(1, limit // len(first)))
    return collection


def _body(recipe: Recipe, jobs: Sequence[Job], statistics: Statistics, departures: Sequence[Departure]) -> str:
    good = usable(jobs)
    plain = [comparison for comparison in statistics.comparisons if not comparison.ablation]
    ablated = [comparison for comparison in statistics.comparisons if comparison.ablation]
    parts_off = {comparison.contender for comparison in ablated}
    shown = [job for job in good if job.label not in parts_off]
    seeds = f"{len(recipe.study.seeds)} seed{'s' if len(recipe.study.seeds) > 1 else ''}"
    parts = [
        f"<h1>Study {escape(recipe.name)}</h1>",
        (
            f'<p class="quiet">{len(labels_of(jobs))} contenders × {seeds}, {len(good)} of {len(jobs)} runs used.'
            " Held-out questions, greedy decoding, last step. EM and F1 in points of 100; mean ± half of the 95 %"
            " interval over seeds (Student t).</p>"
        ),
        _problems(jobs),
        _allowed(departures),
        tables.html(tables.headline(good, statistics)),
        "<h2>What can be said</h2>",
        '<ul class="words">' + "".join(f"<li>{escape(line)}</li>" for line in words(statistics)) + "</ul>",
        tables.html(tables.comparisons(plain)) if plain else "",
        _method(statistics),
        _ablation(ablated, good),
        "<h2>Learning curves</h2>",
        figures.learning_curves(shown),
        "<h2>Information gain per turn over training</h2>",
        f'<p class="quiet">Nats, mean over seeds and {WINDOW} steps; turns are counted from 0.</p>',
        figures.gain_per_turn(shown),
        "<h2>Clip ranges</h2>",
        figures.clip_scales(shown),
        "<h2>Searches</h2>",
        figures.search_counts(shown),
        "<h2>Time</h2>",
        figures.time_split(shown),
        "<h2>Protocol</h2>",
        _protocol(good),
        "<h2>Published figures</h2>",
        _published(),
    ]
    return "\n".join(part for part in parts if part)


def _ablation(ablated: Sequence[Comparison], jobs: Sequence[Job]) -> str:
    """The whole algorithm against itself with parts switched off; everything after it is about whole algorithms
    again.
    """
    if not ablated:
        return ""
    labels = {name for comparison in ablated for name in (comparison.contender, comparison.baseline)}
    curves = figures.learning_curves([job for job in jobs if job.label in labels])
    return f"<h2>Ablation</h2>{tables.html(tables.comparisons(ablated))}{curves}"


def _problems(jobs: Sequence[Job]) -> str:
    items = "".join(f"<li>{escape(job.name)}: {escape(job.problem)}</li>" for job in jobs if job.problem)
    return (
        f'<div class="warning"><p>These runs are left out of every number below:</p><ul>{items}</ul></div>'
        if items
        else ""
    )


def _allowed(departures: Sequence[Departure]) -> str:
    items = "".join(f"<li>{escape(str(departure))}</li>" for departure in departures)
    return (
        '<div class="warning"><p>These runs differ in more than algorithm and seed, which was allowed by'
        f" hand:</p><ul>{items}</ul></div>"
        if items
        else ""
    )


def _method(statistics: Statistics) -> str:
    return (
        '<details><summary>How this was computed, and McNemar tests</summary><p class="quiet">Differences are paired'
        " by question and seed. Intervals: hierarchical bootstrap over seeds and questions, widened to the unbiased"
        " variance of the two-way layout and to Student's quantile for the seeds. p-values are adjusted by Holm over"
        " all comparisons of the study. P(improvement): share of pairs of runs in which the first scores higher."
        " Detectable: smallest true difference that a study of this size and noise sees with 80 % probability. A"
        " McNemar test is about two trained models, not about their"
        f" algorithms.</p>{tables.html(tables.mcnemar(statistics.comparisons))}</details>"
    )


def _protocol(jobs: Sequence[Job]) -> str:
    manifest: dict[str, Any] = json.loads((jobs[0].folder / "manifest.json").read_text(encoding="utf-8"))
    kept = {name: manifest[name] for name in PROTOCOL if name in manifest}
    environment = manifest.get("settings", {}).get("environment", {})
    rows = [["setting", "value"], *([name, json.dumps(value)] for name, value in environment.items())]
    return (
        f"{tables.html(rows)}<details><summary>Everything that the numbers depend"
        f" on</summary><pre>{escape(json.dumps(kept, indent=1))}</pre></details>"
    )


def _references(study: Path) -> str:
    """Agents that nobody trained, with what they cost, where `a2tgpo baseline table --output STUDY` has played them."""
    path = study / "reference.csv"
    if not path.is_file():
        return ""
    lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    rows = [["reference agent", "what it does", "questions", "EM", "±", "F1", "searches", "turns", "tokens"]]
    for line in lines:
        points = [f"{100 * float(line[name]):.1f}" if line[name] else "–" for name in ("em", "em_half_width", "f1")]
        costs = [f"{float(line[name]):.2f}" for name in ("searches", "turns", "tokens")]
        rows.append([line["agent"], line["label"], line["questions"], *points, *costs])
    return (
        '<h2>Reference agents</h2><p class="quiet">Nobody trained these; EM and F1 in points of 100, ± half of the 95'
        " % interval over questions, costs per question. They are not part of the statistics"
        f" above.</p>{tables.html(rows)}"
    )


def _published() -> str:
    """Figures from papers, each beside its protocol; never in one table with a study's."""
    text = (resources.files("a2tgpo") / "baselines" / "published.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    return (
        '<details><summary>Figures from papers, each with its protocol</summary><p class="quiet">Not comparable with'
        " this study, mostly not with each other: corpora, retrievers, metrics, turn limits, training data and"
        " decoding differ. Only figures that one evaluator produced under one protocol can be"
        f" ranked.</p>{tables.html(rows)}</details>"
    )
