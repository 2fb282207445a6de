"""What a study's numbers say, in words that follow from them."""

import dataclasses
from typing import Any

from a2tgpo.studies.comparisons import Comparison, Statistics


def sentence(comparison: Comparison) -> str:
    """One line: the difference, its interval and what may be said."""
    found = comparison.difference
    head = f"{comparison.contender} − {comparison.baseline}: {signed_points(found.mean)} points"
    size = f"{found.seeds} seed{'s' if found.seeds > 1 else ''} × {found.questions} questions"
    if comparison.left_out:
        size += f", {comparison.left_out} left out that not all of these runs could play"
    interval = f"95 % interval {signed_points(found.low)} … {signed_points(found.high)}"
    if found.seeds == 1:
        return (
            f"{head} ({size}): one seed, so nothing can be said about the algorithms; over questions alone the"
            f" {interval}"
        )
    if comparison.distinguishable:
        return (
            f"{head} ({interval}, {size}): {'better' if found.mean > 0 else 'worse'}, p = {_p(comparison.p_holm)} after"
            " Holm"
        )
    if not found.low <= 0 <= found.high:
        return (
            f"{head} ({interval}, {size}): not distinguishable once corrected for the number of comparisons, p ="
            f" {_p(comparison.p_holm)}"
        )
    return f"{head} ({interval}, {size}): not distinguishable"


def power_sentence(statistics: Statistics) -> str:
    """What the study could not have seen."""
    sizes = sorted(
        {(comparison.difference.seeds, comparison.difference.questions) for comparison in statistics.comparisons}
    )
    if not sizes:
        return "One contender, so there is nothing to compare."
    seeds, questions = sizes[0]
    if seeds == 1:
        return (
            "With one seed, luck of the seed and merit of the algorithm cannot be told apart, however many questions"
            " there are; use at least 3 seeds."
        )
    return (
        f"With {seeds} seeds × {questions} questions, the smallest difference detectable with 80 % power is"
        f" {100 * statistics.detectable:.1f} points."
    )


def words(statistics: Statistics) -> list[str]:
    """All sentences, ablations after the rest."""
    ordered = sorted(statistics.comparisons, key=lambda comparison: comparison.ablation)
    lines = [*(sentence(comparison) for comparison in ordered), *statistics.omitted, power_sentence(statistics)]
    if statistics.lacking:
        runs = ", ".join(f"{name} lacks {count}" for name, count in statistics.lacking.items())
        lines.append(
            f"Not every run could play every question ({runs}): a run's means rest on what it has played, a comparison"
            " on what its runs have in common."
        )
    return lines


def as_json(statistics: Statistics) -> dict[str, Any]:
    """For `statistics.json`."""
    return dataclasses.asdict(statistics) | {"detectable": statistics.detectable, "words": words(statistics)}


def signed_points(share: float) -> str:
    """A difference of shares as signed points of 100."""
    return f"{100 * share:+.1f}".replace("-", "−")


def _p(value: float) -> str:
    return "under 0.001" if value < 0.001 else f"{value:.3f}"
