"""Everything a run writes into its folder, except checkpoints.

config.toml      the complete recipe
manifest.json    what the numbers depend on
metrics.jsonl    one line per training step (`kind: train`) and per evaluation (`kind: evaluation`)
episodes/        sampled episodes with their credit, one file per logged step
tensorboard/     the same metrics for TensorBoard
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from a2tgpo.batch import Credit
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError
from a2tgpo.files import nulls, write_text
from a2tgpo.run_folder.episodes import episode_to_dict
from a2tgpo.run_folder.metrics import check_declared


class RunLog:
    """Writer of one run's folder. Every line is flushed when it is written, so that a killed run leaves whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "episodes").mkdir(parents=True, exist_ok=True)
        self._metrics = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"))

    def metrics(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Append one line; NaN (a mean over nothing) is stored as null. All names are declared in
        `a2tgpo.run_folder.metrics`.
        """
        check_declared(kind, values)
        line = {
            "kind": kind,
            "step": step,
            **values,
        }
        self._metrics.write(json.dumps(nulls(line), allow_nan=False) + "\n")
        self._metrics.flush()
        for name, value in values.items():
            if not math.isnan(value):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def episodes(
        self,
        name: str,
        episodes: Sequence[Episode],
        tokenizer: Any,
        credit: Credit | None = None,
        values: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Write episodes with the text of every token.

        Args:
            credit: a row for every episode that did not fail, if any.
            values: the gold answer's values at the cuts of these (`Scores.values`), if any.
        """
        rows = itertools.count()
        lines = []
        for episode in episodes:
            given = None if episode.failed else next(rows)
            lines.append(json.dumps(episode_to_dict(episode, tokenizer, credit, given, values), ensure_ascii=False))
        write_text(self.folder / "episodes" / f"{name}.jsonl", "".join(line + "\n" for line in lines))

    def close(self) -> None:
        self._metrics.close()
        self._board.close()


def read_metrics(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl`, all or of one kind; null becomes NaN. A last line that was cut off is left out.

    Raises:
        ConfigError: if another line is no metrics line.
    """
    path = folder / "metrics.jsonl"
    rows = []
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            if line:
                rows.append({key: math.nan if value is None else value for key, value in json.loads(line).items()})
        except (ValueError, AttributeError) as error:
            if number == len(lines):
                break  # cut off: by a kill, or by reading while it is written
            raise ConfigError(
                f"metrics: line {number} of {path} is no metrics line ({error}); fix or remove it"
            ) from error
    return [row for row in rows if kind is None or row["kind"] == kind]


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop the lines after `step`, and a line that was cut off, before a run is resumed from its checkpoint."""
    path = folder / "metrics.jsonl"
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the end, or the write that a kill interrupted
            break
        if row["step"] <= step:
            kept.append(line)
    write_text(path, "".join(line + "\n" for line in kept))
