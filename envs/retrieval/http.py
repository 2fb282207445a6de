"""Client of a retriever server that speaks the Search-R1 API.

    POST /retrieve  {"queries": [...], "topk": 3, "return_scores": true}
    → {"result": [[{"document": {"id", "contents"}, "score"}, …] per query]}

`contents` is the title on the first line, in quotation marks with its own ones doubled, then the text. Whatever the server does (slow,
wrong, down, half an answer), a call ends within its deadline, with passages or a `RetrievalError`.
"""

import http.client
import json
import math
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from a2tgpo.envs.data.fields import plain_text
from a2tgpo.envs.data.paragraphs import title_and_text
from a2tgpo.envs.data.rows import encodable
from a2tgpo.envs.data.shapes import passage_id
from a2tgpo.envs.records import Passage
from a2tgpo.errors import ConfigError, RetrievalError

_MAX_ANSWER_BYTES = 64 << 20
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


class HttpRetriever:
    """Asks a server, once per call, for all queries together.

    Args:
        url: address of the endpoint, or of the server, whose endpoint is then `/retrieve`.
        timeout: seconds that a call may take in all, from connecting to the last byte.

    Raises:
        ConfigError: for an address that is not http(s), or a timeout that is not positive.
    """

    def __init__(self, url: str, timeout: float = 20.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"retriever: got address {url!r}, expected http://HOST:PORT or https://…")
        if not timeout > 0:
            raise ConfigError(f"retriever: got timeout {timeout}, expected a positive number of seconds")
        self.url = url
        self.timeout = timeout
        self._parts = parts
        self._path = parts.path if parts.path not in ("", "/") else "/retrieve"

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`.

        Raises:
            RetrievalError: if there is no valid answer in time; `transient` tells whether asking again can help.
        """
        if not queries:
            return []
        # Lone surrogates travel as JSON escapes, so any query can be sent.
        body = json.dumps({"queries": list(queries), "topk": k, "return_scores": True}).encode("ascii")
        return read_answer(self._post(body), len(queries), k)

    def _post(self, body: bytes) -> bytes:
        maker = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = maker(self._parts.hostname or "", self._parts.port, timeout=self.timeout)
        late = threading.Event()
        watchdog = threading.Timer(self.timeout, _cut, (connection, late))
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request(
                "POST", self._path, body, {"Content-Type": "application/json", "Accept": "application/json"}
            )
            # if the server closes the connection, only the answer still holds the socket
            with connection.getresponse() as answer:
                data = answer.read(_MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = (
                f"no answer within {self.timeout:g} s"
                if late.is_set() or isinstance(error, TimeoutError)
                else f"{type(error).__name__}: {error}"
            )
            raise RetrievalError(f"{self.url}: {reason}") from error
        finally:
            watchdog.cancel()
            connection.close()
        if late.is_set():
            raise RetrievalError(f"{self.url}: no answer within {self.timeout:g} s")
        if answer.status != http.client.OK:
            raise RetrievalError(
                f"{self.url}: HTTP {answer.status} {answer.reason}", transient=answer.status in _TRANSIENT
            )
        if len(data) > _MAX_ANSWER_BYTES:
            raise RetrievalError(f"{self.url}: answer longer than {_MAX_ANSWER_BYTES} bytes", transient=False)
        return data


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    """End a call that takes too long; a server that sends a byte now and then would never run into the socket's own
    time-out.
    """
    late.set()
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it closed by itself in this moment


def read_answer(data: bytes, num_queries: int, k: int) -> list[list[Passage]]:
    """The passages in a server's answer, with or without scores.

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
    return [[_passage(hit) for hit in hits[:k]] for hits in results]


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
        raise RetrievalError("answer has a document with half of a surrogate pair, which is no character of any text")
    return passage


def _score(value: Any) -> float:
    """A score; NaN where there is none, or one that is no number."""
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
