"""Corpora on disk: reading passages, and building a closed corpus from the paragraphs that come with questions."""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2tgpo.envs.data.containers import iter_rows
from a2tgpo.envs.data.datasets import iter_items
from a2tgpo.envs.data.fields import KNOWN_NAMES, FieldNames, RawRow, plain_text
from a2tgpo.envs.data.paragraphs import title_and_text
from a2tgpo.envs.data.rows import BadRow, Row
from a2tgpo.envs.data.shapes import Item, passage_id
from a2tgpo.envs.records import Passage
from a2tgpo.errors import DataError

PASSAGES = "passages.jsonl"
MANIFEST = "manifest.json"
_ID_FIELDS = ("id", "_id", "docid", "doc_id", "pid", "passage_id", "document_id", "chunk_id", "wikipedia_id")
_LOG = logging.getLogger("a2tgpo.envs")


def corpus_file(path: str | Path) -> Path:
    """The passages file itself, or the one in a folder."""
    path = Path(path)
    return path / PASSAGES if path.is_dir() else path


def read_corpus(path: str | Path) -> list[Passage]:
    """The passages of a file, or of the `passages.jsonl` in a folder.

    A row has a text (`text`, `contents`, `passage`, `body`, …) and usually a title and an id (`id`, `_id`, `docid`,
    `pid`, …). A row without an id is keyed by a hash of its content, and then equal rows are one passage. `contents`
    has the title on its first line; a row of one line is all text. A table whose first record is a number with one or
    two texts (MS MARCO, ColBERT) has no header: id, text and title.

    Raises:
        DataError: if the file cannot be read, is empty, or has a bad row or a repeated id; a corpus with holes would
            make scores incomparable.
    """
    path = corpus_file(path)
    passages: dict[str, Passage] = {}
    equal = 0
    for row in iter_rows(path, headerless=_headerless):
        passage, has_id = _passage(row)
        if passage.id in passages and has_id:
            raise DataError(f"{path}:{row.line}: id {passage.id!r} occurs twice, expected unique ids")
        equal += passage.id in passages
        passages[passage.id] = passage
    if not passages:
        raise DataError(f"{path}: got an empty corpus, expected at least one passage")
    if equal:
        _LOG.warning("%s: %d rows without an id repeat another one word for word; each is one passage", path, equal)
    return list(passages.values())


def _headerless(fields: Sequence[str]) -> tuple[str, ...] | None:
    is_data = len(fields) in (2, 3) and fields[0].isdigit()
    return ("id", "text", "title")[: len(fields)] if is_data else None


def _passage(row: Row | BadRow) -> tuple[Passage, bool]:
    """(the passage, does the row name its id?)."""
    if isinstance(row, BadRow):
        raise DataError(f"{row}; fix or remove the row")
    fields = RawRow(row.data)
    found = title_and_text(row.data)
    if found is None:
        raise DataError(
            f"{row.file}:{row.line}: {fields.found()}, expected a text (text, contents, passage, body, …), and usually"
            " id and title; fix or remove the row"
        )
    title, text = found
    key = next((plain_text(value) for _, value in fields.first(_ID_FIELDS)), "")
    return Passage(key or passage_id(title, text), title, text), bool(key)


@dataclass(frozen=True, slots=True)
class BuiltCorpus:
    """What `build_corpus` wrote."""

    folder: Path
    passages: int
    duplicates: int
    """Paragraphs that were already there, equal in title and text."""
    questions: int
    bad_rows: tuple[BadRow, ...]
    fingerprint: str


def build_corpus(files: Sequence[str | Path], folder: str | Path, names: FieldNames = KNOWN_NAMES) -> BuiltCorpus:
    """Write the closed corpus of question files: every paragraph once, keyed by its content, to `passages.jsonl` with a
    `manifest.json`.

    Streams: memory grows by one key per passage only. Nothing is left half-written; an existing corpus is replaced at
    the end.

    Raises:
        DataError: if a file cannot be read, or no question came with a paragraph.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{PASSAGES}.part"
    seen: set[bytes] = set()
    questions, paragraphs, bad_rows = 0, 0, []
    try:
        with partial.open("w", encoding="utf-8") as out:
            for item in (item for path in files for item in iter_items(path, names=names)):
                if isinstance(item, BadRow):
                    bad_rows.append(item)
                    continue
                questions += 1
                paragraphs += len(item.passages)
                _write_new(out, item, seen)
        if not seen:
            raise DataError(
                f"{', '.join(map(str, files))}: got {questions} questions and no paragraph, expected questions with"
                " context or paragraphs"
            )
        os.replace(partial, folder / PASSAGES)
    finally:
        partial.unlink(missing_ok=True)
    fingerprint = corpus_fingerprint(iter_corpus(folder / PASSAGES))
    built = BuiltCorpus(folder, len(seen), paragraphs - len(seen), questions, tuple(bad_rows), fingerprint)
    manifest = {
        "passages": built.passages,
        "duplicates": built.duplicates,
        "fingerprint": fingerprint,
        "files": [str(Path(path).name) for path in files],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return built


def _write_new(out: Any, item: Item, seen: set[bytes]) -> None:
    for passage in item.passages:
        key = bytes.fromhex(passage.id)
        if key not in seen:
            seen.add(key)
            out.write(to_line(passage))


def to_line(passage: Passage) -> str:
    """One line of `passages.jsonl`."""
    return json.dumps({"id": passage.id, "title": passage.title, "text": passage.text}, ensure_ascii=False) + "\n"


def from_object(data: Mapping[str, Any]) -> Passage:
    """A passage from the object that `to_line` wrote."""
    return Passage(data["id"], data["title"], data["text"])


def iter_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a `passages.jsonl` that this module wrote, one at a time."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield from_object(json.loads(line))


def corpus_fingerprint(passages: Iterable[Passage]) -> str:
    """SHA-256 over ids, titles and texts in order: equal exactly when the corpora are."""
    digest = hashlib.sha256()
    for passage in passages:
        for part in (passage.id, passage.title, passage.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()
