"""Search results on disk: a cache that several processes share, and recordings for exact re-runs."""

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import Found, Retriever, check_retriever, raise_if_all_failed
from a2tgpo.errors import ConfigError, DataError, RetrievalError

_LOG = logging.getLogger("a2tgpo.envs")
_BATCH = 500
"""Keys per SQL statement; SQLite allows about a thousand."""


class Cache:
    """Asks the engine only for what is not on disk yet. Failures are never cached.

    Entries are addressed by content: engine, number of hits, query. The file is SQLite in write-ahead mode, so several
    processes read and write it at once; a cache that breaks (full disk, damaged file) is left aside with one warning,
    and searching continues without it.

    Args:
        engine: what makes results comparable, for example corpus fingerprint and backend name; entries of another
            engine are never used.
    """

    def __init__(self, inner: Retriever, path: str | Path, engine: str) -> None:
        check_retriever(inner)
        if not isinstance(engine, str):
            raise ConfigError(f"Cache.engine: got {engine!r}, expected a text that names backend and corpus")
        self.inner = inner
        self.path = _checked_path("Cache.path", path)
        self.engine = engine
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._local = threading.local()
        self._broken = False

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "path": self.path, "engine": self.engine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`."""
        keys = [self._key(query, k) for query in queries]
        known: dict[str, Found] = dict(self._read(keys))
        missing = dict.fromkeys(query for query, key in zip(queries, keys, strict=True) if key not in known)
        if missing:
            found = dict(zip(missing, self.inner.search(list(missing), k), strict=True))
            fresh = {self._key(query, k): hits for query, hits in found.items()}
            self._write({key: hits for key, hits in fresh.items() if not isinstance(hits, RetrievalError)})
            known |= fresh
        return [known[key] for key in keys]

    def _key(self, query: str, k: int) -> str:
        return hashlib.sha256(f"{self.engine}\0{k}\0{query}".encode("utf-8", "surrogatepass")).hexdigest()

    def _read(self, keys: Sequence[str]) -> dict[str, list[Passage]]:
        known: dict[str, list[Passage]] = {}
        if self._broken:
            return known
        try:
            for start in range(0, len(keys), _BATCH):
                part = keys[start : start + _BATCH]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, hits FROM hits WHERE key IN ({marks})"  # noqa: S608 (only marks)
                rows = self._connection().execute(query, part)
                known.update((key, _decode(hits)) for key, hits in rows)
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            self._give_up(error)
        return known

    def _write(self, fresh: dict[str, list[Passage]]) -> None:
        if self._broken:
            return
        try:
            with self._connection() as connection:
                connection.executemany(
                    "INSERT OR IGNORE INTO hits VALUES (?, ?)", [(key, _encode(hits)) for key, hits in fresh.items()]
                )
        except sqlite3.Error as error:
            self._give_up(error)

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; a forked process must not use its parent's."""
        if getattr(self._local, "process", None) != os.getpid():
            connection = sqlite3.connect(self.path, timeout=30.0)
            self._local.connection, self._local.process = connection, os.getpid()
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS hits (key TEXT PRIMARY KEY, hits TEXT NOT NULL) WITHOUT ROWID"
            )
            connection.commit()
        found: sqlite3.Connection = self._local.connection
        return found

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        _LOG.warning(
            "search cache %s cannot be used (%s); searching continues without it. Delete the file to start a new one.",
            self.path,
            error,
        )

    def close(self) -> None:
        """Close this thread's connection."""
        if getattr(self._local, "process", None) == os.getpid():
            self._local.connection.close()
            self._local.process = None


class Recorder:
    """Passes every search through and appends it, failures included, to a JSONL file that `Replay` answers from."""

    def __init__(self, inner: Retriever, path: str | Path) -> None:
        check_retriever(inner)
        self.inner = inner
        self.path = _checked_path("Recorder.path", path)
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`."""
        try:
            results = self.inner.search(queries, k)
        except RetrievalError as error:
            self._append([_recorded(query, k, error) for query in queries])
            raise
        self._append([_recorded(query, k, hits) for query, hits in zip(queries, results, strict=True)])
        return results

    def _append(self, entries: list[dict[str, Any]]) -> None:
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in entries))


class Replay:
    """Answers from a recording: a query's results in the order in which they were recorded, the last one again after
    that.

    Raises:
        DataError: if the recording cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._entries: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self._place: dict[tuple[str, int], int] = defaultdict(int)
        try:
            lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: no readable recording: {error}") from error
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                self._entries[entry["query"], entry["k"]].append(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: not a recorded search: {error!r}; record again") from error

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`; a query that was never recorded is a failure."""
        entries = [self._next(query, k) for query in queries]
        return raise_if_all_failed(
            [
                RetrievalError(entry["error"]) if "error" in entry else _decode(json.dumps(entry["hits"]))
                for entry in entries
            ]
        )

    def _next(self, query: str, k: int) -> dict[str, Any]:
        recorded = self._entries.get((query, k))
        if not recorded:
            return {"error": f"query {query!r} with k={k} is not in the recording"}
        place = self._place[query, k]
        self._place[query, k] = place + 1
        return recorded[min(place, len(recorded) - 1)]


def _checked_path(name: str, path: object) -> Path:
    if not isinstance(path, str | Path):
        raise ConfigError(f"{name}: got {path!r}, expected the path of a file")
    return Path(path)


def _recorded(query: str, k: int, hits: Found) -> dict[str, Any]:
    entry: dict[str, Any] = {"query": query, "k": k}
    if isinstance(hits, RetrievalError):
        return entry | {"error": str(hits)}
    return entry | {"hits": json.loads(_encode(hits))}


def _encode(hits: Sequence[Passage]) -> str:
    return json.dumps([[hit.id, hit.title, hit.text, hit.score] for hit in hits])


def _decode(data: str) -> list[Passage]:
    return [Passage(*hit) for hit in json.loads(data)]
