"""Corpora on disk: reading passages, and building a closed corpus from the paragraphs that come with questions."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2tgpo.envs.data.datasets import iter_items
from a2tgpo.envs.data.rows import BadRow, Row, iter_rows
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.records import Passage
from a2tgpo.errors import DataError

PASSAGES = "passages.jsonl"
MANIFEST = "manifest.json"


def corpus_file(path: str | Path) -> Path:
    """The passages file itself, or the one in a folder."""
    path = Path(path)
    return path / PASSAGES if path.is_dir() else path


def read_corpus(path: str | Path) -> list[Passage]:
    """The passages of a file, or of the `passages.jsonl` in a folder.

    A row has `id` (or `_id`) and either `text` with an optional `title`, or FlashRAG's `contents`: the title on the
    first line, then the text.

    Raises:
        DataError: if the file cannot be read, is empty, or has a bad row or a repeated id; a corpus with holes would
            make scores incomparable.
    """
    path = corpus_file(path)
    passages: dict[str, Passage] = {}
    for row in iter_rows(path):
        passage = _passage(row)
        if isinstance(passage, BadRow):
            raise DataError(f"{passage}; fix or remove the row")
        if passage.id in passages:
            raise DataError(f"{path}:{row.line}: id {passage.id!r} occurs twice, expected unique ids")
        passages[passage.id] = passage
    if not passages:
        raise DataError(f"{path}: got an empty corpus, expected at least one passage")
    return list(passages.values())


def _passage(row: Row | BadRow) -> Passage | BadRow:
    if isinstance(row, BadRow):
        return row
    key = row.data.get("id", row.data.get("_id"))
    text, title = row.data.get("text"), row.data.get("title") or ""
    if text is None and isinstance(row.data.get("contents"), str):
        first, _, text = row.data["contents"].partition("\n")
        title = title or first.strip().strip('"')
    if key is None or not isinstance(text, str) or not isinstance(title, str):
        return BadRow(
            row.file, row.line, f"got fields {sorted(row.data)}, expected id and text (and title), or id and contents"
        )
    return Passage(str(key), title, text)


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


def build_corpus(files: Sequence[str | Path], folder: str | Path) -> BuiltCorpus:
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
    with partial.open("w", encoding="utf-8") as out:
        for item in (item for path in files for item in iter_items(path)):
            if isinstance(item, BadRow):
                bad_rows.append(item)
                continue
            questions += 1
            paragraphs += len(item.passages)
            _write_new(out, item, seen)
    if not seen:
        partial.unlink()
        raise DataError(
            f"{', '.join(map(str, files))}: got {questions} questions and no paragraph, expected questions with context"
            " or paragraphs"
        )
    os.replace(partial, folder / PASSAGES)
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
