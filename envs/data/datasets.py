"""Questions from files: streaming, splits, shuffles, and what to do with bad rows."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from a2tgpo.envs.data.rows import MAX_ROW_BYTES, BadRow, Row, iter_json_lines, iter_rows
from a2tgpo.envs.data.shapes import Item, ShapeError, to_item
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.scoring.answers import normalize_text
from a2tgpo.errors import ConfigError, DataError

OnBadRow = Literal["error", "skip"]
"""What a reader does with a row that it cannot use."""
SPLITS: dict[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""Shares of a file that is split by hash."""
_SYNONYMS = {"dev": "validation", "valid": "validation", "val": "validation"}
_LOG = logging.getLogger("a2tgpo.envs")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reading:
    """All of a data file."""

    items: tuple[Item, ...]
    bad_rows: tuple[BadRow, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(item.question for item in self.items)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The closed corpus: every passage that came with a question, equal ones once, in order of first appearance."""
        return tuple({passage.id: passage for item in self.items for passage in item.passages}.values())


def iter_items(path: str | Path, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Item | BadRow]:
    """The questions of a file in order, and its bad rows where they are. An id that occurred before makes a bad row."""
    first_line: dict[str, int] = {}
    stem = Path(path).name.partition(".")[0]
    for row in iter_rows(path, max_row_bytes):
        item = _item(row, stem) if isinstance(row, Row) else row
        if isinstance(item, Item):
            known = first_line.setdefault(item.question.id, row.line)
            if known != row.line:
                item = BadRow(row.file, row.line, f"id {item.question.id!r} was already used on line {known}")
        yield item


def _item(row: Row, stem: str) -> Item | BadRow:
    try:
        return to_item(row.data, f"{stem}:{row.line}")
    except ShapeError as error:
        return BadRow(row.file, row.line, str(error))


def read(path: str | Path, on_bad_row: OnBadRow = "error") -> Reading:
    """Read a whole file.

    Args:
        on_bad_row: "error" stops at the first bad row; "skip" leaves bad rows out, reports how many and why in the log,
            and returns them.

    Raises:
        DataError: if the file cannot be read, holds no usable row, or has a bad row with `on_bad_row="error"`.
    """
    if on_bad_row not in ("error", "skip"):
        raise ConfigError(f"on_bad_row: got {on_bad_row!r}, expected 'error' or 'skip'")
    items: list[Item] = []
    bad_rows: list[BadRow] = []
    for item in iter_items(path):
        if isinstance(item, Item):
            items.append(item)
        elif on_bad_row == "error":
            raise DataError(f"{item}; fix or remove the row, or read with on_bad_row='skip'")
        else:
            bad_rows.append(item)
    if bad_rows:
        _LOG.warning("%s: %d rows read, %d skipped; first: %s", path, len(items), len(bad_rows), bad_rows[0])
    if not items:
        raise DataError(f"{path}: got no usable question, expected at least one ({len(bad_rows)} bad rows)")
    return Reading(tuple(items), tuple(bad_rows))


def split_of(question: Question, shares: Mapping[str, float] | None = None, seed: int = 0) -> str:
    """The split of a question: a hash of its normalised text, so that equal questions under different ids never
    straddle two splits.
    """
    shares = shares or SPLITS
    digest = hashlib.sha256(
        f"{seed}\0{normalize_text(question.text) or question.text}".encode("utf-8", "surrogatepass")
    ).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64 * sum(shares.values())
    for name, share in shares.items():
        place -= share
        if place < 0:
            return name
    return list(shares)[-1]


def split_items(items: Iterable[Item], split: str, seed: int = 0) -> list[Item]:
    """The items of one split; "all" = every one.

    Raises:
        ConfigError: for an unknown split.
    """
    if split == "all":
        return list(items)
    name = _SYNONYMS.get(split, split)
    if name not in SPLITS:
        raise ConfigError(f"split: got {split!r}, expected all, {', '.join(SPLITS)}")
    return [item for item in items if split_of(item.question, seed=seed) == name]


def file_of_split(folder: Path, split: str) -> Path:
    """The one data file in a folder whose name contains the split's name.

    Raises:
        DataError: if there is none, or more than one.
    """
    names = {
        split,
        *(synonym for synonym, name in _SYNONYMS.items() if name == _SYNONYMS.get(split, split)),
        _SYNONYMS.get(split, split),
    }
    candidates = sorted(
        path for path in folder.iterdir() if path.is_file() and any(name in path.stem.lower() for name in names)
    )
    if len(candidates) != 1:
        raise DataError(
            f"{folder}: got {[path.name for path in candidates]} for split {split!r}, expected exactly one file whose"
            " name contains it"
        )
    return candidates[0]


def shuffled(items: Sequence[_T], seed: int) -> list[_T]:
    """All items in a seeded order."""
    return [items[row] for row in np.random.default_rng(seed).permutation(len(items))]


def stream(
    paths: Sequence[str | Path], seed: int | None = None, buffer: int = 10_000, on_bad_row: OnBadRow = "skip"
) -> Iterator[Item]:
    """The questions of files that need not fit into memory; with a seed, shuffled within a moving buffer, the same way
    every time.

    Raises:
        DataError: see `read`.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    held: list[Item] = []
    skipped: Counter[str] = Counter()
    for path in paths:
        for item in iter_items(path):
            if isinstance(item, BadRow):
                if on_bad_row == "error":
                    raise DataError(str(item))
                skipped[str(path)] += 1
            elif rng is None:
                yield item
            elif len(held) < buffer:
                held.append(item)
            else:
                place = int(rng.integers(buffer))
                held[place], item = item, held[place]
                yield item
    for path, count in skipped.items():
        _LOG.warning("%s: %d rows skipped", path, count)
    if rng is not None:
        yield from (held[row] for row in rng.permutation(len(held)))


def read_aliases(path: str | Path) -> dict[str, tuple[str, ...]]:
    """2Wiki's `id_aliases.json`: entity id to its other names, demonyms included as the official evaluation does.

    Raises:
        DataError: if the file cannot be read or has a row of another shape.
    """
    aliases: dict[str, tuple[str, ...]] = {}
    path = Path(path)
    # the official file has one object per line in spite of its name
    rows = iter_json_lines(path) if path.suffix == ".json" else iter_rows(path)
    for row in rows:
        if isinstance(row, BadRow) or not isinstance(row.data.get("Q_id"), str):
            raise DataError(f"{path}:{row.line}: got no alias row, expected an object with Q_id, aliases and demonyms")
        aliases[row.data["Q_id"]] = tuple(
            str(name) for field in ("aliases", "demonyms") for name in row.data.get(field) or ()
        )
    return aliases


def with_aliases(items: Iterable[Item], aliases: Mapping[str, Sequence[str]]) -> list[Item]:
    """The same items, each question with the aliases of its `answer_id` behind its own gold answers."""
    found = []
    for item in items:
        more = aliases.get(str(item.question.metadata.get("answer_id")), ())
        answers = item.question.answers + tuple(alias for alias in more if alias not in item.question.answers)
        found.append(replace(item, question=replace(item.question, answers=answers)))
    return found
