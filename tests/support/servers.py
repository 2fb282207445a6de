"""Servers for tests: the real one over a retriever, and ones that do with a connection what a test likes."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from a2tgpo.envs.retrieval.server import RetrieverServer

Reply = Callable[[socket.socket], None]


@contextmanager
def running(server: socketserver.BaseServer) -> Iterator[None]:
    """Serve in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield
    server.shutdown()
    thread.join()


@contextmanager
def serving(retriever: Any) -> Iterator[str]:
    with RetrieverServer(retriever, port=0) as server, running(server):
        yield server.url


@contextmanager
def raw_server(reply: Reply) -> Iterator[str]:
    """A server that reads a request and then does with the socket what it likes."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            try:
                reply(self.request)
            except OSError:
                return  # the client hung up, as it should

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server, running(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> Reply:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def hang(connection: socket.socket) -> None:
    while connection.recv(65_536):  # the rest of the request, and then nothing until the client hangs up
        pass
