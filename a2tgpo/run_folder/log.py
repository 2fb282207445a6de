"""Everything a run writes into its folder, except checkpoints.

config.toml      the complete recipe
manifest.json    what the numbers depend on
metrics.jsonl    one line per training step (`kind: train`) and per evaluation (`kind: evaluation`)
episodes/        sampled episodes with their credit, one file per logged step
tensorboard/     the same metrics for TensorBoard
"""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from a2tgpo.batch import Credit
from a2tgpo.episode import Episode
from a2tgpo.errors import CheckpointError, ConfigError
from a2tgpo.files import nulls, write_bytes, write_text
from a2tgpo.run_folder.episodes import episode_to_dict
from a2tgpo.run_folder.metrics import check_declared


class RunLog:
    """Writer of one run's folder. Every line is flushed when it is written, so that a killed run leaves whole lines."""

    def __init__(self, folder: Path, step: int = -1) -> None:
        """Continue after `step`; what TensorBoard has of later steps is written again."""
        self.folder = folder
        (folder / "episodes").mkdir(parents=True, exist_ok=True)
        self._metrics = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

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

    def mark(self) -> dict[str, int | str]:
        """What a checkpoint counts on: the metrics written so far, which are on disk when this returns."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        written = (self.folder / "metrics.jsonl").read_bytes()
        return {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}

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
                row = json.loads(line)
                if not isinstance(row["kind"], str) or not isinstance(row["step"], int):
                    raise ValueError("no kind and step")
                rows.append({key: math.nan if value is None else value for key, value in row.items()})
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            if number == len(lines):
                break  # cut off: by a kill, or by reading while it is written
            raise ConfigError(
                f"metrics: line {number} of {path} is no metrics line ({error}); fix or remove it"
            ) from error
    return [row for row in rows if kind is None or row["kind"] == kind]


def rewind_metrics(folder: Path, step: int, mark: Mapping[str, Any] | None) -> None:
    """Drop what was written after a checkpoint, before a run is resumed from it.

    Args:
        step: of the checkpoint; -1 = the run begins anew.
        mark: `RunLog.mark` as the checkpoint holds it; None for one written before version 0.1, whose lines are found
            by their steps.

    Raises:
        CheckpointError: if what the checkpoint counts on was changed.
    """
    path = folder / "metrics.jsonl"
    written = path.read_bytes() if path.is_file() else b""
    if step < 0:
        kept = b""
    elif mark is not None:
        kept = written[: mark["bytes"]]
        if hashlib.sha256(kept).hexdigest() != mark["sha256"]:
            raise CheckpointError(
                f"checkpoint of step {step}: {path} differs from what was written up to there; put the file back, or"
                " delete the checkpoint and resume from the one before it"
            )
    else:
        last = max((row["step"] for row in read_metrics(folder)), default=step)
        lines = written.split(b"\n") if last > step else []
        kept = b"".join(line + b"\n" for line in lines if line and _step_of(line) <= step) if lines else written
    write_bytes(path, kept)


def _step_of(line: bytes) -> float:
    """Of a metrics line; infinite for one that was cut off."""
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return math.inf
