"""Published figures beside one's own: never ranked together, and marked where the protocols differ."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import resources

UNKNOWN = ("", "not stated", "not stated here", "as reported", "as reported in the GiGPO paper")
"""What `published.csv` writes where a paper says nothing."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a score depends on besides method and model; texts as `published.csv` has them, empty = not known."""

    corpus: str = ""
    retriever: str = ""
    top_k: str = ""
    """Passages a search."""
    turns: str = ""
    """Searches an episode."""
    decoding: str = ""
    training_data: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """The figures of one method on one model in one source."""

    method: str
    model: str
    source: str
    protocol: Protocol
    scores: Mapping[str, float]
    """EM in percent by data set, as papers call it."""


def published(model: str) -> list[Published]:
    """All published EM figures for a model, in the order of the file, which is by source."""
    text = (resources.files("a2tgpo.baselines") / "published.csv").read_text(encoding="utf-8")
    names = [entry.name for entry in fields(Protocol)]
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["metric"] == "EM" and row["model"] == model:
            key = (row["method"], row["source"], *(row[name] for name in names))
            found.setdefault(key, {})[row["dataset"]] = float(row["value"])
    return [Published(key[0], model, key[1], Protocol(*key[2:]), scores) for key, scores in found.items()]


def models() -> list[str]:
    """Models with published EM figures."""
    text = (resources.files("a2tgpo.baselines") / "published.csv").read_text(encoding="utf-8")
    return list(dict.fromkeys(row["model"] for row in csv.DictReader(io.StringIO(text)) if row["metric"] == "EM"))


def differences(ours: Protocol, theirs: Protocol) -> list[str]:
    """The protocol's columns in which two evaluations differ (`decoding ≠`), or may (`corpus ?`, one is not known)."""
    found = []
    for entry in fields(Protocol):
        mine, other = getattr(ours, entry.name), getattr(theirs, entry.name)
        if mine in UNKNOWN or other in UNKNOWN:
            found.append(f"{entry.name} ?")
        elif not _alike(entry.name, mine, other):
            found.append(f"{entry.name} ≠")
    return found


def _alike(name: str, mine: str, other: str) -> bool:
    if name in ("top_k", "turns"):  # "4 searches (+1 answer)"
        return _number(mine) == _number(other)
    if name == "decoding":  # "sampled, temperature 1 (as the released code evaluates)"
        return mine.partition(",")[0] == other.partition(",")[0]
    if name == "training_data":  # "HotpotQA (multi-hop columns), NQ (single-hop columns)"
        return mine == other or ("columns" in other and mine in re.findall(r"\w+", other))
    return mine == other


def _number(text: str) -> str:
    found = re.match(r"\d+", text)
    return found[0] if found else text


def beside(scores: Mapping[str, float], ours: Protocol, rows: Sequence[Published]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table: published figures for the sets that were scored, in the order of the file, each with
    what differs from our protocol.

    Args:
        scores: own EM in percent by data set; only its names matter here.
    """
    head = ["method", *scores, "source", "differs"]
    return head, [
        [
            row.method,
            *(f"{row.scores[name]:.1f}" if name in row.scores else "–" for name in scores),
            row.source,
            ", ".join(differences(ours, row.protocol)) or "nothing known",
        ]
        for row in rows
        if any(name in row.scores for name in scores)
    ]


def described(protocol: Protocol) -> str:
    """The protocol in one line."""
    values = zip((entry.name for entry in fields(Protocol)), astuple(protocol), strict=True)
    return ", ".join(f"{name.replace('_', ' ')}: {value or 'not known'}" for name, value in values)
