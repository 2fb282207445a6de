"""Questions from files: reading, streaming, and what to do with bad rows."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from a2tgpo.checks import check_choice
from a2tgpo.envs.data.containers import iter_rows
from a2tgpo.envs.data.fields import KNOWN_NAMES, FieldNames, ShapeError
from a2tgpo.envs.data.json_files import iter_json_lines
from a2tgpo.envs.data.rows import MAX_ROW_BYTES, BadRow, Row
from a2tgpo.envs.data.shapes import Item, to_item
from a2tgpo.envs.records import Passage, Question
from a2tgpo.errors import DataError

OnBadRow = Literal["error", "skip"]
"""What a reader does with a row that it cannot use."""
_LOG = logging.getLogger("a2tgpo.envs")


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


def iter_items(
    path: str | Path, max_row_bytes: int = MAX_ROW_BYTES, names: FieldNames = KNOWN_NAMES
) -> Iterator[Item | BadRow]:
    """The questions of a file in order, and its bad rows where they are. An id that occurred before makes a bad row.

    Args:
        names: fields to read instead of those that are known.
    """
    first_line: dict[str, int] = {}
    stem = Path(path).name.partition(".")[0]
    for row in iter_rows(path, max_row_bytes, _headerless):
        item = _item(row, stem, names) if isinstance(row, Row) else row
        if isinstance(item, Item):
            known = first_line.setdefault(item.question.id, row.line)
            if known != row.line:
                item = BadRow(row.file, row.line, f"id {item.question.id!r} was already used on line {known}")
        yield item


def _item(row: Row, stem: str, names: FieldNames) -> Item | BadRow:
    try:
        return to_item(row.data, f"{stem}:{row.line}", names)
    except ShapeError as error:
        return BadRow(row.file, row.line, str(error))


def _headerless(fields: Sequence[str]) -> tuple[str, ...] | None:
    """DPR's tables begin with data: a question and a list of answers."""
    is_list = len(fields) == 2 and fields[1].startswith("[") and fields[1].endswith("]")
    return ("question", "answers") if is_list else None


def read(path: str | Path, on_bad_row: OnBadRow = "error", names: FieldNames = KNOWN_NAMES) -> Reading:
    """Read a whole file.

    Args:
        on_bad_row: "error" stops at the first bad row; "skip" leaves bad rows out, reports how many and why in the log,
            and returns them.
        names: fields to read instead of those that are known.

    Raises:
        DataError: if the file cannot be read, has no usable row, or has a bad row with `on_bad_row="error"`.
    """
    check_choice("on_bad_row", on_bad_row, ("error", "skip"))
    items: list[Item] = []
    bad_rows: list[BadRow] = []
    for item in iter_items(path, names=names):
        if isinstance(item, Item):
            items.append(item)
        elif on_bad_row == "error":
            raise DataError(f"{item}; fix or remove the row, or read with on_bad_row='skip'")
        else:
            bad_rows.append(item)
    if bad_rows:
        _LOG.warning("%s: %d rows read, %d skipped; first: %s", path, len(items), len(bad_rows), bad_rows[0])
    if not items:
        first = f"; first: {bad_rows[0]}" if bad_rows else ""
        raise DataError(f"{path}: got no usable question, expected at least one ({len(bad_rows)} bad rows{first})")
    return Reading(tuple(items), tuple(bad_rows))


def stream(
    paths: Sequence[str | Path],
    seed: int | None = None,
    buffer: int = 10_000,
    on_bad_row: OnBadRow = "skip",
    names: FieldNames = KNOWN_NAMES,
) -> Iterator[Item]:
    """The questions of files that need not fit into memory; with a seed, shuffled within a moving buffer, the same way
    every time.

    Raises:
        DataError: see `read`.
    """
    check_choice("on_bad_row", on_bad_row, ("error", "skip"))
    rng = None if seed is None else np.random.default_rng(seed)
    held: list[Item] = []
    skipped: Counter[str] = Counter()
    for path in paths:
        for item in iter_items(path, names=names):
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


def mixed(parts: Mapping[str, Sequence[Item]], weights: Mapping[str, float]) -> list[Item]:
    """The questions of several data sets as one, in the proportions of their weights.

    A data set that has more questions than its share is thinned; which stay is decided by a hash of their ids. None is
    asked twice. An id that two data sets use is prefixed with the data set's name in both.

    Args:
        parts: name of a data set → its questions.
        weights: name → weight, positive.
    """
    scale = min(len(items) / weights[name] for name, items in parts.items())
    chosen = {name: _thinned(items, round(scale * weights[name])) for name, items in parts.items()}
    uses = Counter(item.question.id for items in chosen.values() for item in items)
    return [
        item if uses[item.question.id] == 1 else _renamed(item, f"{name}/{item.question.id}")
        for name, items in chosen.items()
        for item in items
    ]


def _thinned(items: Sequence[Item], size: int) -> list[Item]:
    """So many of the items, in their order."""
    by_hash = sorted(range(len(items)), key=lambda row: hashlib.sha256(items[row].question.id.encode()).digest())
    return [items[row] for row in sorted(by_hash[: max(size, 1)])]


def _renamed(item: Item, question_id: str) -> Item:
    return replace(item, question=replace(item.question, id=question_id))


def read_aliases(path: str | Path) -> dict[str, tuple[str, ...]]:
    """2Wiki's `id_aliases.json`: entity id to its other names, demonyms included as the official evaluation does.

    Raises:
        DataError: if the file cannot be read or has a row of another shape.
    """
    aliases: dict[str, tuple[str, ...]] = {}
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path of the aliases")
    # the official file has one object per line in spite of its name
    rows = iter_json_lines(path, MAX_ROW_BYTES) if path.suffix == ".json" else iter_rows(path)
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
