"""Which questions belong to train, validation and test: by file, by a hash of the text, and what two of them share."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from a2tgpo.envs.data.containers import KINDS, kind_of
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.records import Question
from a2tgpo.envs.scoring.answers import normalize_text
from a2tgpo.errors import ConfigError, DataError

SPLITS: dict[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""Shares of a file that is split by hash."""
_SYNONYMS = {"dev": "validation", "valid": "validation", "val": "validation", "training": "train"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})")


def question_key(question: Question) -> str:
    """Equal for questions that ask the same in other letters: the normalised text."""
    return normalize_text(question.text) or question.text


def split_of(question: Question, shares: Mapping[str, float] | None = None, seed: int = 0) -> str:
    """The split of a question: a hash of its normalised text, so that equal questions under different ids never
    straddle two splits.
    """
    shares = shares or SPLITS
    digest = hashlib.sha256(f"{seed}\0{question_key(question)}".encode("utf-8", "surrogatepass")).digest()
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


def files_of_split(folder: Path, split: str) -> list[Path]:
    """The data files of a split in a folder: the one whose name has the split's name as a whole word (`train.jsonl`,
    `hotpot_dev_v1.json`, not `retrieval.jsonl` for "val"), or all its parts `train-00000-of-00002.parquet`.

    Raises:
        DataError: if there is none, more than one, or a part is missing.
    """
    found = split_files(folder).get(_SYNONYMS.get(split, split), [])
    parts = [_SHARD.search(path.name) for path in found]
    stems = {_SHARD.sub("", path.name) for path in found}
    if len(found) == 1 and parts[0] is None:
        return found
    numbers = [(int(part[1]), int(part[2])) for part in parts if part is not None]
    if found and len(stems) == 1 and numbers == [(place, len(found)) for place in range(len(found))]:
        return found
    names = [path.name for path in found] or sorted(path.name for path in folder.iterdir())
    raise DataError(
        f"{folder}: got {names} for split {split!r}, expected exactly one file whose name has it as a word, or all its"
        " parts NAME-00000-of-0000N"
    )


def split_files(folder: Path) -> dict[str, list[Path]]:
    """The data files of a folder by the split that their names say; files that name none are left out."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and kind_of(path) in KINDS:
            words = [word.lower() for word in _WORD.findall(path.name.partition(".")[0])]
            for name in {_SYNONYMS.get(word, word) for word in words} & set(SPLITS):
                found.setdefault(name, []).append(path)
    return found


def overlap(ours: Iterable[Question], theirs: Iterable[Question]) -> list[tuple[Question, Question]]:
    """Pairs of questions that ask the same over the same corpus, first of `ours` and first of `theirs`, whatever their
    ids.
    """
    known: dict[tuple[str, str], Question] = {}
    for question in ours:
        known.setdefault((question.corpus, question_key(question)), question)
    shared: dict[tuple[str, str], tuple[Question, Question]] = {}
    for question in theirs:
        key = (question.corpus, question_key(question))
        if key in known:
            shared.setdefault(key, (known[key], question))
    return list(shared.values())


def check_no_overlap(train: Iterable[Question], other: Iterable[Question], name: str = "validation") -> None:
    """Refuse to train on questions that are evaluated.

    Raises:
        DataError: if a question of `other` is also in `train`, with how many and the first.
    """
    shared = overlap(train, other)
    if shared:
        ours, theirs = shared[0]
        raise DataError(
            f"questions: {len(shared)} of the split {name!r} are also in the training split, for example"
            f" {theirs.text!r} ({theirs.id} and {ours.id}); remove them from one of the two, or set"
            " environment.allow_overlap to true"
        )
