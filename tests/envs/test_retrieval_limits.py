"""Limits of client and server: deadlines for every framing, large calls in parts, one refused query fails alone."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval import Bm25Retriever, Cache, CircuitBreaker, Recorder, Replay, Retries, resilient
from a2tgpo.envs.retrieval import http as client
from a2tgpo.envs.retrieval import server as server_module
from a2tgpo.envs.retrieval.base import Found, passages_of
from a2tgpo.envs.retrieval.http import HttpRetriever
from a2tgpo.envs.retrieval.server import MAX_CONNECTIONS, MAX_QUERIES, RetrieverServer
from a2tgpo.errors import ConfigError, RetrievalError
from tests.support.servers import Reply, answer, hang, raw_server, running, serving

PASSAGES = [Passage("p1", "Mona Lisa", "Painted by Leonardo."), Passage("p2", "Zürich", "A lake.")]
LONG = "lake " * 5_000
"""A query that the server refuses."""


# --- the deadline
# ----------------------------------------------------------------------------------------------------------------------


def dripping(head: bytes, drop: bytes = b" ") -> Reply:
    """A byte now and then, without an end: the socket's own time-out never strikes."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:  # until the client hangs up
            connection.sendall(drop)
            time.sleep(0.05)

    return drip


DRIPS = {
    "length": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
    "length, closing": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n"),
    "until it closes": dripping(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
    "HTTP/1.0": dripping(b"HTTP/1.0 200 OK\r\n\r\n"),
    "HTTP/1.0, length": dripping(b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n"),
    "chunks": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "length of a chunk": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "status line": dripping(b"HTTP/1.1 200 ", b"O"),
    "a header": dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "not yet": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "an error": dripping(b"HTTP/1.1 503 No\r\nConnection: close\r\n\r\n"),
    "nothing": hang,
}


@pytest.mark.timeout(30)  # without a deadline none of these ends
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", DRIPS)
def test_the_deadline_holds_for_every_framing(name: str, scheme: str) -> None:
    with raw_server(DRIPS[name]) as url:
        with pytest.raises(RetrievalError) as caught:
            HttpRetriever(url.replace("http:", f"{scheme}:"), timeout=0.3).search(["x"], 1)
        assert caught.value.transient
        if scheme == "http":  # to a client of https, most of these are no handshake
            assert "no answer within 0.3 s" in str(caught.value)


@pytest.mark.timeout(30)
def test_the_deadline_holds_for_a_server_that_does_not_read() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RetrievalError, match=r"no answer within 0\.3 s"):
            HttpRetriever(url, timeout=0.3).search(["x" * 1_000_000] * 30, 1)


@pytest.mark.timeout(30)
def test_the_deadline_is_one_for_all_parts_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BATCH", 1)
    with raw_server(hang) as url, pytest.raises(RetrievalError, match="no answer within"):
        HttpRetriever(url, timeout=0.3).search(["x"] * 500, 1)  # 150 s if each had its own


# --- addresses and answers
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:-1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:80a",
        "http://[::1",
        "http://a..b/",
        "http://a b/",
        "http://host/re trieve",
        "http://host/\n",
        "http://me:secret@host",
        "http://" + "a" * 80 + ".org",
    ],
)
def test_addresses_are_checked_when_read(url: str) -> None:
    with pytest.raises(ConfigError, match="address") as caught:
        HttpRetriever(url)
    assert "secret" not in str(caught.value)


def reply_with(**document: Any) -> bytes:
    score = document.pop("score", 1)
    return json.dumps(
        {"result": [[{"document": {"id": "1", "contents": '"T"\nx', **document}, "score": score}]]}
    ).encode()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (reply_with(score=10**400), "score of 401 digits"),
        (reply_with(contents='"T"\n\ud83d'), "half of a surrogate pair"),
        (reply_with(contents='"\ude00"\nx'), "half of a surrogate pair"),
        (reply_with(id="\ud83d"), "half of a surrogate pair"),
        (reply_with(contents=None), "expected contents"),
        (reply_with(contents=["x"]), "expected contents"),
        (b'{"result": [[' + b"9" * 5_000 + b"]]}", "not JSON"),
    ],
)
def test_answers_are_checked(body: bytes, message: str) -> None:
    with raw_server(answer(body)) as url, pytest.raises(RetrievalError, match=message):
        HttpRetriever(url, timeout=5.0).search(["x"], 1)


@pytest.mark.parametrize("score", ["NaN", "1e400", '"high"', "null", "true", "[1]"])
def test_a_score_that_is_no_number_is_none(score: str) -> None:
    body = reply_with(score="S").replace(b'"S"', score.encode())
    with raw_server(answer(body)) as url:
        [[passage]] = passages_of(HttpRetriever(url, timeout=5.0).search(["x"], 1))
    assert not passage.score < float("inf")


def test_one_bad_hit_fails_its_query_only() -> None:
    good = [{"document": {"id": "1", "contents": '"T"\nx'}, "score": 1}]
    body = json.dumps({"result": [good, [{"document": {"id": "2"}}], good]}).encode()
    with raw_server(answer(body)) as url:
        found = HttpRetriever(url, timeout=5.0).search(["a", "b", "c"], 1)
    assert [isinstance(hits, RetrievalError) for hits in found] == [False, True, False]


# --- large calls, refused queries
# ----------------------------------------------------------------------------------------------------------------------


def test_only_the_refused_query_fails() -> None:
    local = Bm25Retriever(PASSAGES)
    queries = ["mona", LONG, "lake", "x", "lisa", LONG, "zurich", "painted"]
    with serving(local) as url:
        found = HttpRetriever(url).search(queries, 2)
    for query, hits in zip(queries, found, strict=True):
        if query == LONG:
            assert isinstance(hits, RetrievalError)
            assert "HTTP 413" in str(hits)
            assert not hits.transient
        else:
            assert hits == local.search([query], 2)[0]


def test_only_the_refused_query_fails_in_a_step_of_the_environment() -> None:
    questions = [Question(f"q{i}", "?", ("x",)) for i in range(8)]
    with serving(Bm25Retriever(PASSAGES)) as url:
        env = SearchQAVectorEnv(questions, resilient(HttpRetriever(url)), 8, top_k=2)
        env.reset(seed=0)
        texts = ["lake"] * 7 + [LONG]
        _, _, _, _, info = env.step([f"<think>a</think><search>{text}</search>" for text in texts])
    assert info["retrieval_failed"].tolist() == [False] * 7 + [True]
    assert info["searches"].tolist() == [1] * 7 + [0]
    assert "HTTP 413" in info["retrieval_error"][7]


@pytest.mark.parametrize("size", [1, client.MAX_BATCH, client.MAX_BATCH + 1, MAX_QUERIES + 1])
def test_any_number_of_queries(size: int) -> None:
    local = Bm25Retriever(PASSAGES)
    queries = [f"lake {n}" if n % 3 else "mona" for n in range(size)]
    with serving(local) as url:
        assert HttpRetriever(url).search(queries, 1) == local.search(queries, 1)


def test_many_long_queries_are_split_by_their_characters() -> None:
    local = Bm25Retriever(PASSAGES)
    queries = ["lake " * 3_900] * 120  # 2.3 million characters
    with serving(local) as url:
        assert HttpRetriever(url).search(queries, 1) == local.search(queries, 1)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("status", ["400 Bad Request", "413 Too Large", "422 Unprocessable"])
def test_a_server_that_refuses_everything_fails_the_call(status: str) -> None:
    with raw_server(answer(b"", status)) as url, pytest.raises(RetrievalError, match=f"HTTP {status[:3]}") as caught:
        HttpRetriever(url, timeout=5.0).search(["a", "b", "c"], 1)
    assert not caught.value.transient


class Partly:
    """Answers every query but those named, each as often as it has errors left."""

    def __init__(self, **errors: list[RetrievalError]) -> None:
        self.errors = errors
        self.asked: list[list[str]] = []

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        self.asked.append(list(queries))
        return [
            self.errors[query].pop(0) if self.errors.get(query) else [Passage(query, "", query)] for query in queries
        ]


def test_retries_ask_again_only_what_may_pass() -> None:
    engine = Partly(b=[RetrievalError("busy")] * 2, c=[RetrievalError("refused", transient=False)] * 9)
    found = Retries(engine, times=3, sleep=lambda seconds: None).search(["a", "b", "c"], 1)
    assert engine.asked == [["a", "b", "c"], ["b"], ["b"]]
    assert isinstance(found[2], RetrievalError)
    assert [hits[0].id for hits in passages_of(found[:2])] == ["a", "b"]


def test_a_refused_query_does_not_open_the_circuit() -> None:
    engine = Partly(c=[RetrievalError("refused", transient=False)] * 9)
    breaker = CircuitBreaker(engine, failures=2)
    for _ in range(3):
        with pytest.raises(RetrievalError, match="refused"):
            passages_of(breaker.search(["c"], 1))
        assert isinstance(breaker.search(["a", "c"], 1)[1], RetrievalError)


def test_cache_and_recording_keep_what_succeeded(tmp_path: Path) -> None:
    engine = Partly(b=[RetrievalError("busy")])
    cached = Cache(engine, tmp_path / "cache", "partly")
    assert isinstance(cached.search(["a", "b"], 1)[1], RetrievalError)
    assert [hits[0].id for hits in passages_of(cached.search(["a", "b"], 1))] == ["a", "b"]
    assert engine.asked == [["a", "b"], ["b"]]
    cached.close()
    recorder = Recorder(Partly(b=[RetrievalError("busy")]), tmp_path / "recording.jsonl")
    recorder.search(["a", "b"], 1)
    replayed = Replay(tmp_path / "recording.jsonl").search(["a", "b"], 1)
    assert passages_of(replayed[:1])[0][0].id == "a"
    assert str(replayed[1]) == "busy"


# --- the server's connections
# ----------------------------------------------------------------------------------------------------------------------


class Watched(RetrieverServer):
    """Remembers its connections."""

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted = [*getattr(self, "accepted", []), request]
        super().process_request(request, client_address)


def test_answers_are_sent_without_delay() -> None:
    with Watched(Bm25Retriever(PASSAGES), port=0) as server, running(server):
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        for _ in range(2):  # one connection, kept
            connection.request("POST", "/retrieve", b'{"queries": ["lake"]}')
            assert connection.getresponse().read()
        [accepted] = server.accepted
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()


def open_and_stall(address: Any) -> socket.socket:
    connection = socket.create_connection(address[:2], timeout=20)
    connection.sendall(b"POST /retrieve HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
    return connection


@pytest.mark.timeout(60)
def test_stalling_connections_keep_nobody_out() -> None:
    searching, go_on = threading.Event(), threading.Event()

    class Slow(Bm25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            if queries == ["wait"]:
                searching.set()
                go_on.wait()
            return super().search(queries, k)

    with RetrieverServer(Slow(PASSAGES), port=0) as server, running(server):
        served: list[Any] = []
        asks = HttpRetriever(server.url)
        first = threading.Thread(target=lambda: served.append(asks.search(["wait"], 1)), daemon=True)
        first.start()
        searching.wait()
        stalling = [open_and_stall(server.server_address) for _ in range(MAX_CONNECTIONS + 5)]
        for _ in range(3):
            assert passages_of(HttpRetriever(server.url).search(["lake"], 1))[0][0].id == "p2"
        assert stalling[0].recv(1) == b""  # the one that stalled longest gave way
        go_on.set()
        first.join()
        assert len(served) == 1  # one whose search takes long is never cut
        for connection in stalling:
            connection.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("head", [b"", b"POST /retr", b"POST /retrieve HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"])
def test_a_connection_has_so_long_for_its_request(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 0.3)
    with serving(Bm25Retriever(PASSAGES)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=0.05) as connection:
            connection.sendall(head)
            while True:  # drips until it is cut
                try:
                    if connection.recv(1) == b"":
                        break
                except TimeoutError:
                    connection.sendall(b"x")
                except OSError:
                    break
        assert passages_of(HttpRetriever(url).search(["lake"], 1))[0][0].id == "p2"
