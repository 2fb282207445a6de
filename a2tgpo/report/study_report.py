"""The report of a study: `report.html`, `table.md`, `table.tex`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from a2tgpo.config import Recipe
from a2tgpo.errors import ConfigError
from a2tgpo.files import write_text
from a2tgpo.report import figures, sections, tables
from a2tgpo.report.page import page, script
from a2tgpo.report.viewer import LIMIT, Collection, block, episode_files, section
from a2tgpo.studies.comparable import Departure, check_comparable
from a2tgpo.studies.comparisons import Comparison, Statistics, results_of, statistics_of
from a2tgpo.studies.curves import WINDOW, histories
from a2tgpo.studies.study import Job, labels_of, load_study, usable
from a2tgpo.studies.verdicts import power_sentence, words

HIDE = (
    '<p class="quiet">Thin lines are single seeds, bands 95 % intervals.'
    ' <label><input type="checkbox" id="no-runs"> hide single seeds</label>'
    ' <label><input type="checkbox" id="no-bands"> hide intervals</label></p>'
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
    """Write the report of a study, or of a single run, into its folder, or to `output` (an .html file; the tables go
    beside it).

    Raises:
        ConfigError: if the folder is neither, has no usable run, or its runs cannot be compared.
    """
    recipe, jobs = load_study(study)
    good = usable(jobs)
    if not good:
        problems = "\n".join(f"  {job.name}: {job.problem}" for job in jobs)
        raise ConfigError(
            f"study: got {str(study)!r} without a run that can be used, expected one at least:\n{problems}\ncontinue it"
            " with `a2tgpo compare` (a single run with `a2tgpo train --resume RUN`)"
        )
    departures = check_comparable(good, [*recipe.study.allow, *allow])
    statistics, collection = statistics_of(recipe, good), _episodes(good, limit)
    html = output or study / "report.html"
    body = _body(recipe, jobs, statistics, departures) + sections.references(study) + "<h2>Episodes</h2>" + section()
    scripts = [script("report.js"), script("viewer.js")]
    write_text(html, page(_title(recipe, jobs), body, scripts, [block(collection)]))
    rows, compared = tables.headline(good, statistics), tables.comparisons(statistics.comparisons)
    caption = (
        f"{_title(recipe, jobs)}: held-out questions, greedy; mean ± half of the 95 % interval over seeds."
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
    found, labels = histories(shown), labels_of(shown)
    links = {f"{item.contender} − {item.baseline}": sections.anchor(item) for item in statistics.comparisons}
    parts = [
        _head(recipe, jobs, len(good)),
        sections.problems(jobs),
        sections.allowed(departures),
        tables.html(tables.headline(good, statistics)),
        "<h2>What can be said</h2>",
        '<ul class="words">' + "".join(f"<li>{escape(line)}</li>" for line in words(statistics)) + "</ul>",
        tables.html(tables.comparisons(plain), links) if plain else "",
        sections.method(statistics) if statistics.comparisons else "",
        _ablation(ablated, good, links),
        sections.questions(statistics.comparisons, results_of(good)),
        "<h2>Learning curves</h2>",
        HIDE,
        figures.learning_curves(found, labels),
        "<h2>Exact match by hops</h2>",
        figures.by_hops(found, labels),
        "<h2>Information gain per turn over training</h2>",
        (
            f'<p class="quiet">Nats, mean over seeds and {WINDOW} steps; turns are counted from 0. Turns that fewer'
            " than half of the steps have are left out.</p>"
        ),
        figures.gain_per_turn(found, labels),
        "<h2>Training</h2>",
        f'<p class="quiet">Of the training episodes and updates; mean over {WINDOW} steps.</p>',
        figures.training_curves(found, labels),
        "<h2>Clip ranges</h2>",
        figures.clip_scales(shown, found),
        "<h2>Searches</h2>",
        figures.search_counts(shown),
        "<h2>Time</h2>",
        figures.time_split(found, labels),
        "<h2>Protocol</h2>",
        sections.protocol(good),
        "<h2>Published figures</h2>",
        sections.published(),
    ]
    return "\n".join(part for part in parts if part)


def _head(recipe: Recipe, jobs: Sequence[Job], used: int) -> str:
    contenders, seeds = len(labels_of(jobs)), len(recipe.study.seeds)
    size = f"{contenders} contender{'s' * (contenders > 1)} × {seeds} seed{'s' * (seeds > 1)}"
    return (
        f'<h1>{escape(_title(recipe, jobs))}</h1><p class="quiet">{size}, {used} of {len(jobs)} runs used.'
        " Held-out questions, greedy decoding, last step. EM and F1 in points of 100; mean ± half of the 95 %"
        " interval over seeds (Student t), from three seeds on.</p>"
    )


def _title(recipe: Recipe, jobs: Sequence[Job]) -> str:
    return f"Study {recipe.name}" if len(jobs) > 1 else f"Run {jobs[0].name}"


def _ablation(ablated: Sequence[Comparison], jobs: Sequence[Job], links: Mapping[str, str]) -> str:
    """The whole algorithm against itself with parts switched off; everything after it is about whole algorithms
    again.
    """
    if not ablated:
        return ""
    labels = {name for comparison in ablated for name in (comparison.contender, comparison.baseline)}
    chosen = [job for job in jobs if job.label in labels]
    curves = figures.learning_curves(histories(chosen), labels_of(chosen))
    return f"<h2>Ablation</h2>{tables.html(tables.comparisons(ablated), links)}{curves}"
