"""Search engines by name. An index is built once per corpus in a process and shared by all who ask for it."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

from a2tgpo.checks import did_you_mean
from a2tgpo.envs.data.corpus import corpus_file, corpus_fingerprint, read_corpus
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import Retriever
from a2tgpo.envs.retrieval.bm25 import Bm25Retriever
from a2tgpo.envs.retrieval.http import HttpRetriever, checked_address
from a2tgpo.envs.retrieval.rank import RankBm25Retriever
from a2tgpo.envs.retrieval.resilience import resilient
from a2tgpo.envs.retrieval.store import is_index
from a2tgpo.errors import ConfigError

BACKENDS: dict[str, Callable[[Sequence[Passage]], Retriever]] = {"bm25": Bm25Retriever, "rank_bm25": RankBm25Retriever}

_shared: WeakValueDictionary[Hashable, Retriever] = WeakValueDictionary()
"""Retrievers in use, by name and corpus; one that nobody holds any more is gone."""
_lock = Lock()


def make_retriever(name: str, passages: Sequence[Passage]) -> Retriever:
    """The in-process backend of that name over a corpus, or the client of a server address, with retries and a circuit
    breaker.

    Equal names and corpora give the same object for as long as anyone holds it, so environments over the same corpus
    share one index.

    Raises:
        ConfigError: for an unknown name or a corpus that cannot be searched.
    """
    if is_address(name):
        return resilient(HttpRetriever(name))
    backend = _backend(name)
    return _once((name, corpus_fingerprint(passages)), lambda: backend(passages))


def open_retriever(name: str, corpus: str | Path) -> Retriever:
    """The in-process backend of that name over a corpus on disk: a passages file, a folder with one, or, for "bm25", a
    saved index.

    Raises:
        ConfigError: for an unknown name or a corpus that cannot be searched.
        DataError: if the file cannot be used.
    """
    backend, corpus = _backend(name), Path(corpus)
    if name == "bm25" and is_index(corpus):
        return Bm25Retriever.open(corpus)
    file = corpus_file(corpus)
    if not file.is_file():
        return backend(read_corpus(file))
    state = file.stat()
    key = (name, file.resolve(), state.st_size, state.st_mtime_ns)
    return _once(key, lambda: make_retriever(name, read_corpus(file)))


def is_address(name: str) -> bool:
    """Is it the address of a server?"""
    return name.lower().startswith(("http://", "https://"))


def check_name(name: str) -> None:
    """Refuse a name that is neither a backend nor an address.

    Raises:
        ConfigError: naming the nearest.
    """
    if is_address(name):
        checked_address(name)
    else:
        _backend(name)


def _backend(name: str) -> Callable[[Sequence[Passage]], Retriever]:
    if name not in BACKENDS:
        raise ConfigError(
            f"retriever: got {name!r}, expected one of {', '.join(BACKENDS)} or the http(s) address of a server"
            f"{did_you_mean(name, BACKENDS)}"
        )
    return BACKENDS[name]


def _once(key: Hashable, make: Callable[[], Retriever]) -> Retriever:
    with _lock:
        found = _shared.get(key)
    if found is None:
        made = make()
        with _lock:
            found = _shared.setdefault(key, made)
    return found
