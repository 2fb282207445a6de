"""Tables of a study as HTML, Markdown and LaTeX."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

from a2tgpo.means import Interval
from a2tgpo.studies.comparisons import Comparison, Statistics
from a2tgpo.studies.study import Job, final_intervals
from a2tgpo.studies.verdicts import signed_points

COLUMNS = {"em": "EM", "f1": "F1", "searches": "searches", "gain_per_turn": "gain / turn (nats)", "seconds": "seconds"}
Rows = list[list[str]]
_NUMBER = re.compile(r"[+−-]?[\d.,–]|$")
"""How a cell of a column of numbers begins."""
_LONG = 32
"""Characters from which a cell may wrap."""


def headline(jobs: Sequence[Job], statistics: Statistics) -> Rows:
    """First row: column titles. EM and F1 in points of 100; mean ± half of the 95 % interval over seeds."""
    rows = [["algorithm", "seeds", *COLUMNS.values(), "EM, interquartile mean"]]
    for name, columns in final_intervals(jobs).items():
        middle = statistics.interquartile_means.get(name, math.nan)
        rows.append(
            [name, str(columns["em"].count), *(_cell(column, columns[column]) for column in COLUMNS), _points(middle)]
        )
    return rows


def comparisons(found: Sequence[Comparison]) -> Rows:
    """First row: column titles. Differences in points of 100."""
    rows = [["comparison", "difference", "95 % interval", "p (Holm)", "P(improvement)", "detectable", "verdict"]]
    for item in found:
        difference = item.difference
        verdict = ("better" if difference.mean > 0 else "worse") if item.distinguishable else "not distinguishable"
        rows.append(
            [
                f"{item.contender} − {item.baseline}",
                signed_points(difference.mean),
                f"{signed_points(difference.low)} … {signed_points(difference.high)}",
                "–" if math.isnan(item.p_holm) else f"{item.p_holm:.3f}",
                f"{item.improvement:.2f}",
                _points(difference.detectable),
                "one seed: nothing" if difference.seeds == 1 else verdict,
            ]
        )
    return rows


def mcnemar(found: Sequence[Comparison]) -> Rows:
    """First row: column titles. One row per comparison and seed: these two trained models on the same questions."""
    rows = [["comparison", "seed", "only first right", "only second right", "p (exact)"]]
    for item in found:
        for seed, test in item.mcnemar.items():
            rows.append(
                [
                    f"{item.contender} − {item.baseline}",
                    str(seed),
                    str(test.only_first),
                    str(test.only_second),
                    f"{test.p_value:.3f}",
                ]
            )
    return rows


def html(rows: Rows, links: Mapping[str, str] | None = None, *, tall: bool = False) -> str:
    """Every cell is escaped. Columns of numbers stand to the right; long cells may wrap, others never do.

    Args:
        rows: the first row holds the column titles.
        links: text of a first cell → where it leads, within the page.
        tall: scroll within the table rather than show all of it.
    """
    text = [place == 0 or not all(_NUMBER.match(row[place]) for row in rows[1:]) for place in range(len(rows[0]))]

    def cell(tag: str, place: int, value: str) -> str:
        kinds = [*(["text"] if text[place] else []), *(["long"] if tag == "td" and len(value) > _LONG else [])]
        inner = escape(value)
        if tag == "td" and place == 0 and links and value in links:
            inner = f'<a href="#{escape(links[value])}">{inner}</a>'
        css = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<{tag}{css}>{inner}</{tag}>"

    head = "".join(cell("th", place, value) for place, value in enumerate(rows[0]))
    body = "".join(
        "<tr>" + "".join(cell("td", place, value) for place, value in enumerate(row)) + "</tr>" for row in rows[1:]
    )
    return (
        f'<div class="scroll{" tall" if tall else ""}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def markdown(rows: Rows) -> str:
    """A Markdown table."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, ruler, *body])


def latex(rows: Rows, caption: str) -> str:
    """A LaTeX table for `booktabs`."""
    head, *body = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in rows]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_tex(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
        r"\toprule",
        head,
    ]
    return "\n".join([*lines, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "–": "--",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def _cell(column: str, interval: Interval) -> str:
    if math.isnan(interval.mean):
        return "–"
    if column == "seconds":
        return f"{interval.mean:.0f}"
    factor, digits = (100, 1) if column in ("em", "f1") else (1, 2)
    half = "" if math.isnan(interval.half) else f" ± {factor * interval.half:.{digits}f}"
    return f"{factor * interval.mean:.{digits}f}{half}"


def _points(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
