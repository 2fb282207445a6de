"""Averages over several data sets, in both ways that papers take them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from a2tgpo.means import mean
from a2tgpo.studies.scorecard import PartScores


@dataclass(frozen=True, slots=True)
class Average:
    """EM over some data sets, in 0 … 1."""

    name: str
    questions: int
    over_samples: float
    """Every question counts alike, as in the A2TGPO paper: large sets count more."""
    over_sets: float
    """Every set counts alike, as in Search-R1."""


def averages(lines: Sequence[PartScores], kinds: Mapping[str, str]) -> list[Average]:
    """Over all data sets, and over those of each kind where there are several kinds.

    Args:
        lines: of one or more data sets; those of all questions of a set count.
        kinds: data set → its kind, e.g. `multi-hop`; sets without one count in the average over all only.
    """
    whole = [line for line in lines if line.part == "all"]
    named = dict.fromkeys(kinds[line.dataset] for line in whole if line.dataset in kinds)
    parts = {name: [line for line in whole if kinds.get(line.dataset) == name] for name in named}
    parts = (parts if len(parts) > 1 else {}) | {"all sets": whole}
    return [_average(name, found) for name, found in parts.items() if len(found) > 1]


def _average(name: str, lines: Sequence[PartScores]) -> Average:
    questions = sum(line.questions for line in lines)
    pooled = sum(line.questions * line.values["em"] for line in lines if line.questions) / max(questions, 1)
    return Average(name, questions, pooled, mean(line.values["em"] for line in lines))
