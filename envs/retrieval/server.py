"""A retriever server that speaks the Search-R1 API, on the standard library alone.

`POST /retrieve` answers as `http.py` describes; `GET /health` says how many passages there are. It listens on the
loopback address unless told otherwise: the API has no authentication. One thread per connection, a bounded number of
them; bodies, queries and hits are bounded too, and every error is JSON.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from a2tgpo.envs.retrieval.base import LocalRetriever, Retriever, check_retriever, passages_of
from a2tgpo.envs.retrieval.http import to_hit
from a2tgpo.errors import ConfigError, RetrievalError

MAX_BODY_BYTES = 8 << 20
MAX_QUERIES = 2_048
MAX_QUERY_LENGTH = 20_000
MAX_TOP_K = 100
MAX_CONNECTIONS = 128
DEFAULT_TOP_K = 3
IDLE_SECONDS = 30
"""For a whole request, and for each part of an answer."""
_LOG = logging.getLogger("a2tgpo.envs.retrieval.server")


class _RefusedError(Exception):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RetrieverServer(ThreadingHTTPServer):
    """Serves one retriever. `serve_forever()` blocks, `shutdown()` (from another thread) ends it; port 0 picks a free
    one.

    A connection has 30 s for each request, from the end of the one before, and for taking each answer. Where all 128
    places are taken, the connection that has made the server wait longest gives way to a new one, so clients that send
    a byte now and then cannot keep others out.

    Raises:
        ConfigError: for what cannot search, or a port that cannot be.
        OSError: if the port is taken.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, retriever: Retriever, host: str = "127.0.0.1", port: int = 8000) -> None:
        check_retriever(retriever)
        if not isinstance(port, int) or not 0 <= port <= 65_535:
            raise ConfigError(f"port: got {port!r}, expected a whole number from 0 to 65535")
        self.retriever = retriever
        self._waiting: dict[socket.socket, float | None] = {}
        """Every connection, and since when the server waits for it; None while it searches for it."""
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def waits_for(self, connection: socket.socket) -> None:
        """The connection has to send, or to take, something now."""
        self._note(connection, time.monotonic())

    def searches_for(self, connection: socket.socket) -> None:
        """The connection's request is complete; what takes time now is not its fault."""
        self._note(connection, None)

    def _note(self, connection: socket.socket, since: float | None) -> None:
        with self._lock:
            if connection in self._waiting:  # not after it was cut
                self._waiting[connection] = since

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            room = len(self._waiting) < MAX_CONNECTIONS or self._cut_slowest()
            if room:
                self._waiting[request] = time.monotonic()
        if not room:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._waiting.pop(request, None)

    def service_actions(self) -> None:
        """End the connections whose time is over; called again and again by `serve_forever`."""
        with self._lock:
            late = time.monotonic() - IDLE_SECONDS
            for connection in [c for c, since in self._waiting.items() if since is not None and since < late]:
                self._cut(connection)

    def _cut_slowest(self) -> bool:
        """End the connection that is waited for longest; False if all are being answered."""
        waiting = {connection: since for connection, since in self._waiting.items() if since is not None}
        if waiting:
            self._cut(min(waiting, key=waiting.__getitem__))
        return bool(waiting)

    def _cut(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        try:
            connection.shutdown(socket.SHUT_RDWR)  # its thread finds it at its end, and closes it
        except OSError:
            return  # it ended by itself

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("connection of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True  # an answer's last packet would wait 40 ms for the client's receipt
    wbufsize = -1  # head and body of an answer leave together
    server: RetrieverServer
    connection: socket.socket

    def handle_one_request(self) -> None:
        """One request of a connection that may have several."""
        self.server.waits_for(self.connection)
        super().handle_one_request()

    def do_GET(self) -> None:
        """`/health`."""
        if self.path != "/health":
            self._send(HTTPStatus.NOT_FOUND, {"error": f"got {self.path}, expected POST /retrieve or GET /health"})
            return
        retriever = self.server.retriever
        passages = len(retriever.passages) if isinstance(retriever, LocalRetriever) else None
        self._send(HTTPStatus.OK, {"status": "ok", "passages": passages})

    def do_POST(self) -> None:
        """`/retrieve`."""
        try:
            queries, k, with_scores = read_request(self._body(), self.path)
            self.server.searches_for(self.connection)
            results = passages_of(self.server.retriever.search(queries, k))
        except _RefusedError as refusal:
            self.close_connection = True  # the body may be unread
            self._send(refusal.status, {"error": str(refusal)})
        except RetrievalError as error:
            self._send(HTTPStatus.BAD_GATEWAY, {"error": str(error)})
        else:
            self._send(HTTPStatus.OK, {"result": [[to_hit(hit, with_scores) for hit in hits] for hits in results]})

    def _body(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError as error:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "got no Content-Length, expected one") from error
        if not 0 <= length <= MAX_BODY_BYTES:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"got a body of {length} bytes, expected at most {MAX_BODY_BYTES}"
            )
        return self.rfile.read(length)

    def _send(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        data = json.dumps(answer).encode("ascii")
        self.server.waits_for(self.connection)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s %s", self.address_string(), format % args)


def read_request(body: bytes, path: str) -> tuple[list[str], int, bool]:
    """(queries, hits per query, with scores?) of a request.

    Raises:
        _RefusedError: with the status to answer.
    """
    if path.rstrip("/") != "/retrieve":
        raise _RefusedError(HTTPStatus.NOT_FOUND, f"got {path}, expected POST /retrieve")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"body is not JSON: {error}") from error
    queries = request.get("queries") if isinstance(request, Mapping) else None
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "queries: expected a list of texts")
    if len(queries) > MAX_QUERIES or any(len(query) > MAX_QUERY_LENGTH for query in queries):
        raise _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"queries: expected at most {MAX_QUERIES} of at most {MAX_QUERY_LENGTH} characters",
        )
    k = request.get("topk")
    k = DEFAULT_TOP_K if k is None else k
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_TOP_K:
        raise _RefusedError(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"topk: got {k!r}, expected a whole number from 1 to {MAX_TOP_K}"
        )
    return queries, k, bool(request.get("return_scores", False))
