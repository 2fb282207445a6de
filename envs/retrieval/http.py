"""Client of a retriever server that speaks the Search-R1 API.

    POST /retrieve  {"queries": [...], "topk": 3, "return_scores": true}
    → {"result": [[{"document": {"id", "contents"}, "score"}, …] per query]}

`contents` is the title on the first line, in quotation marks with its own ones doubled, then the text. Whatever the
server does (slow, wrong, down, half an answer), a call ends within its deadline, with passages or a `RetrievalError`.
"""

import http.client
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from a2tgpo.checks import check_number
from a2tgpo.envs.data.fields import plain_text
from a2tgpo.envs.data.paragraphs import title_and_text
from a2tgpo.envs.data.rows import encodable
from a2tgpo.envs.data.shapes import passage_id
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.base import Found, raise_if_all_failed
from a2tgpo.errors import ConfigError, RetrievalError

MAX_BATCH = 512
"""Queries in one request; more are split."""
MAX_BATCH_CHARACTERS = 1 << 20
"""Characters of all queries in one request; more are split."""
_MAX_ANSWER_BYTES = 64 << 20
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 414, 422, 431})
"""Statuses that may be due to one query of many."""


class HttpRetriever:
    """Asks a server, once per call, for all queries together; a large call is split into several requests.

    Where a server refuses a request (HTTP 400, 413, 422, …), its queries are asked in halves, so that only those that
    are refused alone have failed.

    Args:
        url: address of the endpoint, or of the server, whose endpoint is then `/retrieve`.
        timeout: seconds that a call may take in all, from connecting to the last byte.

    Raises:
        ConfigError: for an address that cannot be one, or a timeout that is not positive.
    """

    def __init__(self, url: str, timeout: float = 20.0) -> None:
        self._parts = checked_address(url)
        self.timeout = check_number("retriever, timeout in seconds", timeout, low=1e-3)
        self.url = url
        path = self._parts.path if self._parts.path not in ("", "/") else "/retrieve"
        self._path = f"{path}?{self._parts.query}" if self._parts.query else path

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`.

        Raises:
            RetrievalError: if no query has a valid answer in time; `transient` tells whether asking again can help.
        """
        found: list[Found] = []
        deadline = time.monotonic() + self.timeout
        for batch in _batches(queries):
            found += self._ask(batch, k, deadline)
        return raise_if_all_failed(found)

    def _ask(self, queries: Sequence[str], k: int, deadline: float) -> list[Found]:
        # Half of a surrogate pair travels as a JSON escape, so any query can be sent.
        body = json.dumps({"queries": list(queries), "topk": k, "return_scores": True}).encode("ascii")
        try:
            return read_answer(self._post(body, deadline), len(queries), k)
        except _RefusedError as error:
            if len(queries) == 1:
                return [error]
            middle = len(queries) // 2
            return self._ask(queries[:middle], k, deadline) + self._ask(queries[middle:], k, deadline)
        except RetrievalError as error:
            return [error] * len(queries)

    def _post(self, body: bytes, deadline: float) -> bytes:
        """Send a request and return the body of its answer."""
        exchange = _Exchange(self._parts, deadline)
        try:
            status, reason, data = exchange.run(self._path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not exchange.late:
                raise RetrievalError(f"{self.url}: {type(error).__name__}: {error}") from error
            raise self._too_late() from error
        if exchange.late:  # cut off, which looks like an end to an answer without a length
            raise self._too_late()
        if status in _REFUSED:
            raise _RefusedError(f"{self.url}: HTTP {status} {reason}", transient=False)
        if status != http.client.OK:
            raise RetrievalError(f"{self.url}: HTTP {status} {reason}", transient=status in _TRANSIENT)
        if len(data) > _MAX_ANSWER_BYTES:
            raise RetrievalError(f"{self.url}: answer longer than {_MAX_ANSWER_BYTES} bytes", transient=False)
        return data

    def _too_late(self) -> RetrievalError:
        return RetrievalError(f"{self.url}: no answer within {self.timeout:g} s")


class _RefusedError(RetrievalError):
    """The server answered that it does not take this request."""


def checked_address(url: str) -> SplitResult:
    """The parts of a server's address.

    Raises:
        ConfigError: if no connection could ever be made to it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except (ValueError, TypeError, AttributeError) as error:  # a port of 99999, an open bracket, no text at all
        raise ConfigError(f"retriever: got address {url!r}, expected http://HOST:PORT or https://…: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"retriever: got address {url!r}, expected http://HOST:PORT or https://…")
    if port == 0:
        raise ConfigError(f"retriever: got address {url!r}, expected a port from 1 to 65535")
    if parts.username is not None:
        raise ConfigError("retriever: got an address with a user's name, expected http://HOST:PORT; none would be sent")
    if any(character <= " " or character == "\x7f" for character in url):
        raise ConfigError(f"retriever: got address {url!r} with a blank or control character, expected none")
    return parts


class _Exchange:
    """One request and its answer, ended at the deadline whatever the other side does."""

    def __init__(self, parts: SplitResult, deadline: float) -> None:
        self._parts = parts
        self._deadline = deadline
        self._socket = socket.socket()
        self._lock = threading.Lock()
        self._cut = False

    @property
    def late(self) -> bool:
        """Has the time run out?"""
        return self._cut or time.monotonic() >= self._deadline

    def run(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        """(status, reason, body of the answer, at most one byte more than is allowed)."""
        secure = self._parts.scheme == "https"
        host = self._parts.hostname or ""
        port = self._parts.port or (443 if secure else 80)
        watchdog = threading.Timer(max(0.0, self._deadline - time.monotonic()), self._end)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._connect(host, port, secure)
            maker = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            connection = maker(host, self._parts.port)
            connection.sock = self._socket
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", path, body, headers)
            with connection.getresponse() as answer:
                return answer.status, answer.reason, answer.read(_MAX_ANSWER_BYTES + 1)
        finally:
            watchdog.cancel()
            self._socket.close()

    def _connect(self, host: str, port: int, secure: bool) -> None:
        """Try the host's addresses within what is left of the time."""
        failure: OSError = TimeoutError("timed out")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            left = self._deadline - time.monotonic()
            if left <= 0:
                break
            self._hold(socket.socket(family, kind, protocol))
            self._socket.settimeout(left)
            try:
                self._socket.connect(address)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if secure:
                    self._secure(self._socket, host)
                return
            except OSError as error:
                failure = error
        raise failure

    def _secure(self, connected: socket.socket, host: str) -> None:
        secured = _trusted().wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
        self._hold(secured)
        secured.do_handshake()

    def _hold(self, opened: socket.socket) -> None:
        """Keep a socket in place of the one before, for `_end` to find."""
        with self._lock:
            self._socket.close()
            self._socket = opened
        if self._cut:
            raise TimeoutError("timed out")

    def _end(self) -> None:
        """End a call that takes too long; a server that sends a byte now and then would never run into the socket's own
        time-out.
        """
        with self._lock:
            self._cut = True
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of an SSLSocket pulls its state away
            except OSError:
                return  # not connected yet, or closed in this moment


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


def _batches(queries: Sequence[str]) -> list[Sequence[str]]:
    """The queries in as few requests as the limits allow."""
    found: list[Sequence[str]] = []
    start, size = 0, 0
    for place, query in enumerate(queries):
        if place > start and (place - start == MAX_BATCH or size + len(query) > MAX_BATCH_CHARACTERS):
            found.append(queries[start:place])
            start, size = place, 0
        size += len(query)
    return [*found, queries[start:]] if queries else found


def read_answer(data: bytes, num_queries: int, k: int) -> list[Found]:
    """The passages in a server's answer, with or without scores; an error for a query with a hit that cannot be used.

    Raises:
        RetrievalError: if it is not the API's JSON, or has another number of results than there were queries.
    """
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RetrievalError(f"answer is not JSON: {error}; it begins with {data[:40]!r}") from error
    results = answer.get("result") if isinstance(answer, Mapping) else None
    if (
        not isinstance(results, list)
        or len(results) != num_queries
        or not all(isinstance(hits, list) for hits in results)
    ):
        got = f"{len(results)} results" if isinstance(results, list) else f"{type(results).__name__}"
        raise RetrievalError(f"answer has {got} under 'result', expected one list per query ({num_queries})")
    return [_hits(hits[:k]) for hits in results]


def _hits(hits: Sequence[Any]) -> Found:
    try:
        return [_passage(hit) for hit in hits]
    except RetrievalError as error:
        return error


def _passage(hit: Any) -> Passage:
    document = hit.get("document", hit) if isinstance(hit, Mapping) else None
    if not isinstance(document, Mapping):
        raise RetrievalError(
            f"answer has a hit of type {type(hit).__name__}, expected an object with document and score"
        )
    found = title_and_text(document)
    if found is None:
        raise RetrievalError(f"answer has a document with fields {sorted(map(str, document))}, expected contents")
    title, text = found
    key = document.get("id")
    passage = Passage(
        passage_id(title, text) if key is None else plain_text(key), title, text, _score(hit.get("score"))
    )
    if not all(encodable(part) for part in (passage.id, title, text)):
        raise RetrievalError("answer has a document with half of a surrogate pair, which is not a character")
    return passage


def _score(value: Any) -> float:
    """A score; NaN where there is none, or one that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError as error:
        raise RetrievalError(f"answer has a score of {len(str(value))} digits, expected a number") from error


def to_hit(passage: Passage, with_score: bool) -> dict[str, Any]:
    """A passage as the API writes it."""
    title = " ".join(passage.title.split("\n")).replace('"', '""')
    document = {"id": passage.id, "contents": f'"{title}"\n{passage.text}'}
    return (
        {"document": document, "score": None if math.isnan(passage.score) else passage.score}
        if with_score
        else document
    )
