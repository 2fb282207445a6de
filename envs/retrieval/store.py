"""A BM25 index on disk beside its corpus, memory-mapped when opened.

A folder holds bm25s's matrix, `passages.jsonl`, the byte offset of each passage, and `index.json` with the corpus
fingerprint and the hash of every file. The folder is written under another name first, so a reader never sees half an
index.

Every file is compared with its hash when an index is opened: once for as long as the files' sizes and times stay the
same, which is noted beside them in `verified.json` (and in memory, where the folder cannot be written).
"""

import json
import logging
import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import bm25s
import numpy as np
from numpy.typing import NDArray

from a2tgpo.envs.data.corpus import PASSAGES, corpus_fingerprint, from_object, to_line
from a2tgpo.envs.records import Passage
from a2tgpo.errors import DataError
from a2tgpo.files import file_sha256, write_text

_INDEX = "index.json"
_OFFSETS = "offsets.npy"
_VERIFIED = "verified.json"
_FORMAT = 1
_LOG = logging.getLogger("a2tgpo.envs")
_verified: dict[Path, dict[str, list[int]]] = {}
"""State of the files of an index when this process verified it."""


class PassageStore(Sequence[Passage]):
    """The passages of a saved index, read from the memory-mapped file one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: NDArray[np.int64] = np.load(folder / _OFFSETS, mmap_mode="r")
        with (folder / PASSAGES).open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, row: int) -> Passage: ...
    @overload
    def __getitem__(self, row: slice) -> list[Passage]: ...
    def __getitem__(self, row: int | slice) -> Passage | list[Passage]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        return from_object(json.loads(self._memory[self._offsets[row] : self._offsets[row + 1]]))

    def __reduce__(self) -> tuple[type["PassageStore"], tuple[Path]]:
        # Another process maps the same file instead of receiving a copy.
        return PassageStore, (self._folder,)


def save_index(folder: str | Path, index: bm25s.BM25, passages: Sequence[Passage]) -> None:
    """Write an index and the corpus that it was built from; an existing folder is replaced."""
    folder = Path(folder)
    partial = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    index.save(str(partial), show_progress=False)
    offsets = [0]
    with (partial / PASSAGES).open("wb") as out:
        for passage in passages:
            offsets.append(offsets[-1] + out.write(to_line(passage).encode("utf-8", "surrogatepass")))
    np.save(partial / _OFFSETS, np.asarray(offsets, dtype=np.int64))
    files = {path.name: file_sha256(path) for path in sorted(partial.iterdir())}
    manifest = {
        "format": _FORMAT,
        "passages": len(passages),
        "fingerprint": corpus_fingerprint(passages),
        "files": files,
    }
    (partial / _INDEX).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def open_index(folder: str | Path, corpus: Sequence[Passage] | None) -> tuple[bm25s.BM25, PassageStore]:
    """Open what `save_index` wrote.

    Raises:
        DataError: if the folder is incomplete, damaged, of another format, or was not built from `corpus`.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    _verify_once(folder, manifest)
    if corpus is not None:
        expected = corpus_fingerprint(corpus)
        if expected != manifest["fingerprint"]:
            raise DataError(
                f"{folder}: the index was built from another corpus (fingerprint {manifest['fingerprint'][:12]},"
                f" {manifest['passages']} passages) than the one given ({expected[:12]}, {len(corpus)} passages); build"
                " it again from this corpus"
            )
    store = PassageStore(folder)
    index = bm25s.BM25.load(str(folder), mmap=True, show_progress=False)
    if len(store) != manifest["passages"] or int(index.scores["num_docs"]) != len(store):
        raise DataError(
            f"{folder}: the index covers {index.scores['num_docs']} passages and the corpus has {len(store)}; build it"
            " again"
        )
    return index, store


def verify_index(folder: str | Path) -> None:
    """Read every byte of a saved index and compare it with the hashes written when it was built.

    Raises:
        DataError: naming the first file that differs.
    """
    folder = Path(folder)
    for name, digest in _manifest(folder)["files"].items():
        if not (folder / name).is_file() or file_sha256(folder / name) != digest:
            raise DataError(f"{folder}: {name} is missing or differs from what was built; build the index again")


def _verify_once(folder: Path, manifest: Mapping[str, Any]) -> None:
    """`verify_index`, unless that was done and no file has changed since."""
    state = _state(folder, manifest)
    if state is not None and state in (_verified.get(folder.resolve()), _noted(folder)):
        return
    verify_index(folder)
    if state is None or state != _state(folder, manifest):
        raise DataError(f"{folder}: the index changed while it was read; open it again")
    _verified[folder.resolve()] = state
    try:
        write_text(folder / _VERIFIED, json.dumps(state, indent=1) + "\n")
    except OSError:
        _LOG.debug("%s cannot be written; the index is verified by every process that opens it", folder)


def _state(folder: Path, manifest: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """Size, time of the last change, and time of the last change of anything (which no program can set), by file."""
    found = {}
    for name in (_INDEX, *manifest["files"]):
        try:
            state = (folder / name).stat()
        except OSError:
            return None
        found[name] = [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return found


def _noted(folder: Path) -> Any:
    try:
        return json.loads((folder / _VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # never verified, or a note that was cut off: verify


def is_index(path: str | Path) -> bool:
    """Does a saved index lie there?"""
    return (Path(path) / _INDEX).is_file()


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder}: holds no readable index ({error}); build one with Bm25Retriever(passages).save(folder)"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DataError(f"{folder}: got an index of another format, expected format {_FORMAT}; build it again")
    return manifest
