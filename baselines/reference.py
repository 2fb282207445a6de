"""The reference table: every agent on the same questions, with what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from a2tgpo.baselines.agents import AGENTS, play
from a2tgpo.baselines.player import Played
from a2tgpo.baselines.voice import Voice
from a2tgpo.display.tables import table
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.episode import StopReason
from a2tgpo.files import write_csv, write_json_lines
from a2tgpo.means import Interval
from a2tgpo.training.rollout import check_played

COLUMNS = ("em", "f1", "searches", "turns", "tokens", "answered")
TITLES = {"em": "EM", "f1": "F1", "searches": "searches", "turns": "turns", "tokens": "tokens", "answered": "answered"}


@dataclass(frozen=True, slots=True)
class Reference:
    """One row of the table."""

    name: str
    label: str
    rows: tuple[Mapping[str, object], ...]
    """One row per question, as evaluations write them."""

    @property
    def means(self) -> dict[str, float]:
        """Means over questions; searches, turns and tokens per question."""
        return {column: float(np.mean(self._column(column))) for column in COLUMNS}

    @property
    def em(self) -> Interval:
        """EM over questions."""
        return Interval.over_questions(self._column("em"))

    def _column(self, name: str) -> list[float]:
        if name == "answered":
            return [float(row["stop"] == StopReason.ANSWERED) for row in self.rows]
        return [float(str(row[name])) for row in self.rows]


def reference_rows(
    names: Sequence[str], env: SearchQAVectorEnv, question_ids: Sequence[str], seed: int = 0, voice: Voice | None = None
) -> list[Reference]:
    """Play every named agent on the same questions.

    Args:
        names: of agents in `AGENTS`.
        env: a vector environment with `AutoresetMode.DISABLED`.
        question_ids: questions of that environment.
        seed: of random agents and of sampling.
        voice: the language model, for agents that need one.
    """
    return [reference_of(name, AGENTS[name].label, play(name, env, question_ids, seed, voice)) for name in names]


def reference_of(name: str, label: str, played: Sequence[Played]) -> Reference:
    """A row from an agent's episodes; those that a search engine broke are left out.

    Raises:
        RolloutError: if most were.
    """
    check_played(played, 0.5, f"the agent {name!r}", "then play again")
    return Reference(name, label, tuple(episode.row() for episode in played if not episode.failed))


def terminal_table(references: Sequence[Reference], title: str) -> Table:
    """The table for the terminal; it fits into 80 columns."""
    caption = [
        "Means over questions, ± half of the 95 % interval.",
        *(f"{row.name}: {row.label}" for row in references),
    ]
    rows = []
    for reference in references:
        means = reference.means
        counts = [f"{means['f1']:.3f}", f"{means['searches']:.2f}", f"{means['turns']:.2f}", f"{means['tokens']:.0f}"]
        rows.append([reference.name, f"{reference.em:.3f}", *counts, f"{means['answered']:.3f}"])
    return table(["agent", *(TITLES[column] for column in COLUMNS)], rows, title=title, caption="\n".join(caption))


def warnings_of(references: Sequence[Reference]) -> list[str]:
    """What a reader of the table must know: agents that never answered."""
    return [
        f"{reference.name} answered none of {len(reference.rows)} questions: its EM says nothing about what it knows;"
        " see the column `stop` of its rows"
        for reference in references
        if reference.means["answered"] == 0
    ]


def write_references(references: Sequence[Reference], folder: Path) -> None:
    """Write `reference.csv` (the table) and `reference.jsonl` (a row per agent and question)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(
        folder / "reference.csv",
        ["agent", "label", "questions", *COLUMNS, "em_half_width"],
        ([row.name, row.label, len(row.rows), *row.means.values(), row.em.half] for row in references),
    )
    write_json_lines(
        folder / "reference.jsonl",
        ({"agent": reference.name} | dict(row) for reference in references for row in reference.rows),
    )
