"""What the figures of the A2TGPO paper (arXiv 2605.06200) show, computed from a study's recorded runs as data frames.

Every function takes the usable runs of a study and returns a tidy frame, one row per point; an empty one where the runs
hold nothing for it. Turns are counted from 0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import pandas as pd

from a2tgpo.algorithms import ALGORITHMS, Algorithm
from a2tgpo.files import read_json_lines
from a2tgpo.run_folder.episodes import episode_from_dict
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.studies.study import Job

_WORD = re.compile(r"\w+")
QUANTITIES = ("raw gain", "z", "advantage")
PHASES = ("rollout", "gain", "update", "evaluation")


def context_similarity(jobs: Sequence[Job]) -> pd.DataFrame:
    """Figure 1: how alike turns of different episodes of one question are, at the same turn index and at others.

    The similarity of two turns is the Jaccard index of the sets of words of what they wrote and what it led to, in the
    last recorded step. Columns: algorithm, turn (of the first), other (turn of the second), similarity (mean over
    pairs), pairs.
    """
    sums: dict[tuple[str, int, int], list[float]] = {}
    for job in jobs:
        for _, members in groupby(_last_episodes(job), key=lambda row: row["group"]):
            words = [_turn_words(row) for row in members]
            for first, second in combinations(words, 2):
                for turn, mine in enumerate(first):
                    for other, theirs in enumerate(second):
                        sums.setdefault((job.label, turn, other), []).append(_jaccard(mine, theirs))
    rows = [
        {"algorithm": label, "turn": turn, "other": other, "similarity": sum(found) / len(found), "pairs": len(found)}
        for (label, turn, other), found in sorted(sums.items())
    ]
    return pd.DataFrame(rows, columns=["algorithm", "turn", "other", "similarity", "pairs"])


def training_curves(jobs: Sequence[Job], metrics: Mapping[str, str], kind: str = "train") -> pd.DataFrame:
    """Figures 3, 5 and 8: metrics over training steps. Columns: algorithm, seed, step, metric (its title), value."""
    rows = [
        {"algorithm": job.label, "seed": job.recipe.seed, "step": int(row["step"]), "metric": title, "value": row[name]}
        for job in jobs
        for row in read_metrics(job.folder, kind)
        for name, title in metrics.items()
        if name in row
    ]
    return pd.DataFrame(rows, columns=["algorithm", "seed", "step", "metric", "value"])


def gain_to_advantage(jobs: Sequence[Job]) -> pd.DataFrame:
    """Figure 4: from raw gain over z to advantage, for every search turn with a gain of the last recorded step.

    Columns: algorithm, turn, quantity (raw gain, z, advantage), value. Algorithms from files are left out: looking at a
    study runs no code of theirs.
    """
    rows = []
    for job in jobs:
        algorithm = _algorithm(job)
        played = [row for row in _last_episodes(job) if row["stop"] != "failed" and row["turns"]]
        if not played or algorithm is None or not algorithm.needs_information_gain:
            continue
        table = algorithm.tabulate([episode_from_dict(row) for row in played])
        z = algorithm.workings(table).columns.get("z")
        for place, row in enumerate(played):
            for turn, given in enumerate(row["turns"]):
                if given["information_gain"] is None or z is None:
                    continue
                values = (given["information_gain"], float(z[place, turn]), given["advantage"])
                rows += [
                    {"algorithm": job.label, "turn": turn, "quantity": name, "value": value}
                    for name, value in zip(QUANTITIES, values, strict=True)
                ]
    return pd.DataFrame(rows, columns=["algorithm", "turn", "quantity", "value"])


def time_split(jobs: Sequence[Job]) -> pd.DataFrame:
    """Figure 7: mean seconds of a training step by what they were spent on. Columns: algorithm, phase, seconds."""
    rows = []
    for job in jobs:
        steps = read_metrics(job.folder, "train")
        rows += [
            {"algorithm": job.label, "phase": phase, "seconds": row[f"seconds_{phase}"]}
            for row in steps
            for phase in PHASES
            if f"seconds_{phase}" in row
        ]
    frame = pd.DataFrame(rows, columns=["algorithm", "phase", "seconds"])
    return frame.groupby(["algorithm", "phase"], sort=False, as_index=False).mean()


def final_scores(jobs: Sequence[Job], option: str) -> pd.DataFrame:
    """Figure 9: the held-out score of the last evaluation over one option of an algorithm, such as `clip_modulation`.

    Columns: algorithm, option, seed, em. Empty unless the study has at least three values of the option.
    """
    rows = []
    for job in jobs:
        value = getattr(_algorithm(job), option, None)
        if value is not None:
            em = read_metrics(job.folder, "evaluation")[-1]["em"]
            rows.append({"algorithm": job.recipe.algorithm, "option": float(value), "seed": job.recipe.seed, "em": em})
    frame = pd.DataFrame(rows, columns=["algorithm", "option", "seed", "em"])
    return frame if frame["option"].nunique() >= 3 else frame.iloc[:0]


def search_counts(jobs: Sequence[Job]) -> pd.DataFrame:
    """Figure 10: share of held-out questions by number of searches, last evaluation. Columns: algorithm, searches,
    share.
    """
    rows = [
        {"algorithm": job.label, "searches": int(row["searches"])}
        for job in jobs
        for row in _rows(sorted((job.folder / "evaluations").glob("step-*.jsonl"))[-1:])
    ]
    frame = pd.DataFrame(rows, columns=["algorithm", "searches"])
    counts = frame.groupby("algorithm", sort=False)["searches"].value_counts(normalize=True).rename("share")
    return counts.reset_index()


def _algorithm(job: Job) -> Algorithm | None:
    """The run's algorithm, unless it comes from a file."""
    if job.recipe.algorithm not in ALGORITHMS:
        return None
    return job.recipe.build_algorithm()


def _last_episodes(job: Job) -> Iterator[dict[str, Any]]:
    yield from _rows(sorted((job.folder / "episodes").glob("step-*.jsonl"))[-1:])


def _rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        yield from read_json_lines(path)


def _turn_words(row: Mapping[str, Any]) -> list[frozenset[str]]:
    """Per turn, the words that it wrote and that it was shown in return."""
    turns = row["turns"]
    shown = [*(turn["context_text"] for turn in turns[1:]), row["closing_text"]]
    written = (" ".join(turn["action_texts"]) for turn in turns)
    return [frozenset(_WORD.findall(f"{action} {text}".lower())) for action, text in zip(written, shown, strict=True)]


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / max(1, len(first | second))
