"""The reference table: every agent on the same questions, with what it costs."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from a2tgpo.baselines.agents import AGENTS, play
from a2tgpo.baselines.player import Played
from a2tgpo.baselines.voice import Voice
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.episode import StopReason

COLUMNS = ("em", "f1", "searches", "turns", "tokens", "answered")
TITLES = {"em": "EM", "f1": "F1", "searches": "searches", "turns": "turns", "tokens": "tokens", "answered": "answered"}
NORMAL_95 = 1.96


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
    def em_half_width(self) -> float:
        """Half of the 95 % interval of the EM over questions."""
        values = self._column("em")
        return NORMAL_95 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan

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
    """A row from an agent's episodes."""
    return Reference(name, label, tuple(episode.row() for episode in played))


def terminal_table(references: Sequence[Reference], title: str) -> Table:
    """The table for the terminal; it fits into 80 columns."""
    table = Table(
        title=title,
        caption="\n".join(
            ["Means over questions, ± half of the 95 % interval.", *(f"{row.name}: {row.label}" for row in references)]
        ),
    )
    for name in ("agent", "EM", "±", *(TITLES[column] for column in COLUMNS[1:])):
        table.add_column(name, justify="left" if name == "agent" else "right", no_wrap=True)
    for reference in references:
        means = reference.means
        cells = [
            f"{means['em']:.3f}",
            f"{reference.em_half_width:.3f}",
            f"{means['f1']:.3f}",
            f"{means['searches']:.2f}",
            f"{means['turns']:.2f}",
        ]
        table.add_row(reference.name, *cells, f"{means['tokens']:.0f}", f"{means['answered']:.3f}")
    return table


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
    with (folder / "reference.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["agent", "label", "questions", *COLUMNS, "em_half_width"])
        for reference in references:
            writer.writerow(
                [
                    reference.name,
                    reference.label,
                    len(reference.rows),
                    *reference.means.values(),
                    reference.em_half_width,
                ]
            )
    lines = (
        json.dumps({"agent": reference.name} | dict(row), ensure_ascii=False) + "\n"
        for reference in references
        for row in reference.rows
    )
    (folder / "reference.jsonl").write_text("".join(lines), encoding="utf-8")
