"""Sections of a report: what went wrong, how it was computed, what the numbers depend on, what else there is."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from a2tgpo.report import tables
from a2tgpo.studies.comparable import Departure
from a2tgpo.studies.comparisons import Comparison, Results, Row, Statistics, questions_of
from a2tgpo.studies.study import Job

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
SHOWN = 50
"""Questions won, and as many lost, that a comparison lists."""


def problems(jobs: Sequence[Job]) -> str:
    """The runs that are left out, and why."""
    items = "".join(f"<li>{escape(job.name)}: {escape(job.problem)}</li>" for job in jobs if job.problem)
    return (
        f'<div class="warning"><p>These runs are left out of every number below:</p><ul>{items}</ul></div>'
        if items
        else ""
    )


def allowed(departures: Sequence[Departure]) -> str:
    """In what the runs differ although it matters."""
    items = "".join(f"<li>{escape(str(departure))}</li>" for departure in departures)
    return (
        '<div class="warning"><p>These runs differ in more than algorithm and seed, which was allowed by'
        f" hand:</p><ul>{items}</ul></div>"
        if items
        else ""
    )


def method(statistics: Statistics) -> str:
    """How the comparisons were computed, and the tests of single pairs of models."""
    return (
        '<details><summary>How this was computed, and McNemar tests</summary><p class="quiet">Differences are paired'
        " by question and seed. Intervals: hierarchical bootstrap over seeds and questions, widened to the unbiased"
        " variance of the two-way layout and to Student's quantile for the seeds. p-values are adjusted by Holm over"
        " all comparisons of the study. P(improvement): share of pairs of runs in which the first scores higher."
        " Detectable: smallest true difference that a study of this size and noise sees with 80 % probability. A"
        " McNemar test is about two trained models, not about their"
        f" algorithms.</p>{tables.html(tables.mcnemar(statistics.comparisons))}</details>"
    )


def protocol(jobs: Sequence[Job]) -> str:
    """What the numbers depend on."""
    manifest: dict[str, Any] = json.loads((jobs[0].folder / "manifest.json").read_text(encoding="utf-8"))
    kept = {name: manifest[name] for name in PROTOCOL if name in manifest}
    environment = manifest.get("settings", {}).get("environment", {})
    rows = [["setting", "value"], *([name, json.dumps(value)] for name, value in environment.items())]
    return (
        f"{tables.html(rows)}<details><summary>Everything that the numbers depend"
        f" on</summary><pre>{escape(json.dumps(kept, indent=1))}</pre></details>"
    )


def references(study: Path) -> str:
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


def published() -> str:
    """Figures from papers, each beside its protocol; never in one table with a study's."""
    text = (resources.files("a2tgpo") / "baselines" / "published.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    return (
        '<details><summary>Figures from papers, each with its protocol</summary><p class="quiet">Not comparable with'
        " this study, mostly not with each other: corpora, retrievers, metrics, turn limits, training data and"
        " decoding differ. Only figures that one evaluator produced under one protocol can be"
        f" ranked.</p>{tables.html(rows)}</details>"
    )


def anchor(comparison: Comparison) -> str:
    """Where the questions of a comparison stand in the page."""
    return f"questions-{comparison.contender}-{comparison.baseline}"


def questions(comparisons: Sequence[Comparison], results: Mapping[str, Results]) -> str:
    """The questions that each comparison's contender answered better or worse than its baseline."""
    if not comparisons:
        return ""
    parts = [
        '<h2>Questions won and lost</h2><p class="quiet">Held-out questions whose mean exact match over the seeds is'
        " higher or lower than the baseline's; every answer with ✓ or ✗, seed by seed.</p>"
    ]
    for comparison in comparisons:
        found = [(scores.difference("em"), scores) for scores in questions_of(results, comparison)]
        won = sorted((item for item in found if item[0] > 0), key=lambda item: -item[0])
        lost = sorted((item for item in found if item[0] < 0), key=lambda item: item[0])
        name = f"{comparison.contender} − {comparison.baseline}"
        rows = [["question", "gold answers", "hops", "difference", comparison.contender, comparison.baseline]]
        for difference, scores in [*won[:SHOWN], *lost[:SHOWN]]:
            row = scores.row
            gold = " | ".join(row.get("gold_answers", ())) or "–"
            text = str(row.get("question") or row["question_id"])
            answers = (_answers(scores.contender), _answers(scores.baseline))
            rows.append([text, gold, str(row.get("hops") or "–"), f"{difference:+.2f}".replace("-", "−"), *answers])
        counts = f"{len(won)} questions won, {len(lost)} lost, {len(found) - len(won) - len(lost)} equal"
        more = f"; the {SHOWN} clearest of each" if max(len(won), len(lost)) > SHOWN else ""
        parts.append(
            f"<details><summary>{escape(name)}: {counts}{more}</summary>"
            f'<div id="{escape(anchor(comparison))}">{tables.html(rows, tall=True)}</div></details>'
        )
    return "".join(parts)


def _answers(rows: Sequence[Row]) -> str:
    """The answers over seeds, right ones marked."""
    return ", ".join(f"{'✓' if row['em'] == 1 else '✗'} {row.get('answer') or '–'}" for row in rows)
