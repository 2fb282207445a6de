"""The server, its client, and the chaos test: whatever a server does, a call ends in time with passages or a labelled
failure.
"""

import gc
import http.client
import itertools
import json
import math
import socket
import threading
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest

from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.envs.retrieval.base import passages_of
from a2tgpo.envs.retrieval.http import HttpRetriever, read_answer
from a2tgpo.envs.retrieval.resilience import CircuitBreaker, Retries, TimeLimit, resilient
from a2tgpo.envs.retrieval.server import MAX_BODY_BYTES, MAX_QUERIES
from a2tgpo.errors import RetrievalError
from tests.support.servers import Reply, answer, hang, raw_server, serving

PASSAGES = [
    Passage("p1", 'The "Mona" Lisa', "Painted by Leonardo.\nSecond line."),
    Passage("p2", "Zürich", "A lake, 湖."),
    Passage("p3", "", "untitled lake"),
]


def post(url: str, body: bytes, path: str = "/retrieve") -> tuple[int, Any]:
    """A plain client that knows nothing of ours."""
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_client_and_server_carry_passages_faithfully() -> None:
    local = Bm25Retriever(PASSAGES)
    with serving(local) as url:
        remote = HttpRetriever(url)
        for queries in (["mona lisa", "lake", "nothing of that kind"], ["\ud800 lake \x00"], []):
            assert remote.search(queries, 3) == local.search(queries, 3)
        assert HttpRetriever(url + "/retrieve").search(["lake"], 1) == local.search(["lake"], 1)


def test_plain_client() -> None:
    with serving(Bm25Retriever(PASSAGES)) as url:
        status, answer = post(url, json.dumps({"queries": ["mona"], "topk": 1, "return_scores": True}).encode())
        assert status == 200
        [[hit]] = answer["result"]
        assert hit["document"] == {"id": "p1", "contents": '"The ""Mona"" Lisa"\nPainted by Leonardo.\nSecond line.'}
        assert hit["score"] > 0
        status, answer = post(url, json.dumps({"queries": ["mona", "xyzzy"]}).encode())
        assert answer == {
            "result": [[{"id": "p1", "contents": '"The ""Mona"" Lisa"\nPainted by Leonardo.\nSecond line.'}], []]
        }
        assert post(url, json.dumps({"queries": [], "topk": None}).encode()) == (200, {"result": []})
        with urllib.request.urlopen(url + "/health", timeout=10) as health:
            assert json.loads(health.read()) == {"status": "ok", "passages": 3}


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", "/retrieve", 400),
        (b"\xff", "/retrieve", 400),
        (b"[" * 100_000, "/retrieve", 400),
        (b"[]", "/retrieve", 422),
        (b"{}", "/retrieve", 422),
        (b'{"queries": "x"}', "/retrieve", 422),
        (b'{"queries": [1]}', "/retrieve", 422),
        (b'{"queries": ["x"], "topk": 0}', "/retrieve", 422),
        (b'{"queries": ["x"], "topk": 1e9}', "/retrieve", 422),
        (b'{"queries": ["x"], "topk": true}', "/retrieve", 422),
        (json.dumps({"queries": ["x"] * (MAX_QUERIES + 1)}).encode(), "/retrieve", 413),
        (json.dumps({"queries": ["x" * 30_000]}).encode(), "/retrieve", 413),
        (b'{"queries": ["x"]}', "/other", 404),
    ],
)
def test_server_refuses_with_a_reason(body: bytes, path: str, status: int) -> None:
    with serving(Bm25Retriever(PASSAGES)) as url:
        got, answer = post(url, body, path)
        assert got == status
        assert answer["error"]
        assert post(url, b'{"queries": ["mona"]}')[0] == 200  # still alive


def test_server_bounds_bodies_without_reading_them() -> None:
    with serving(Bm25Retriever(PASSAGES)) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        connection.putrequest("POST", "/retrieve")
        connection.putheader("Content-Length", str(MAX_BODY_BYTES + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        connection.connect()
        connection.putrequest("POST", "/retrieve")
        connection.endheaders()
        assert connection.getresponse().status == 411
        connection.close()


class Failing:
    """Follows a script: an exception is raised, anything else comes from a real engine. The last entry repeats."""

    def __init__(self, *script: Exception | None) -> None:
        self.script = list(script)
        self.calls = 0
        self.inner = Bm25Retriever(PASSAGES)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        step = self.script[min(self.calls, len(self.script) - 1)]
        self.calls += 1
        if step is not None:
            raise step
        return self.inner.search(queries, k)


def test_a_failing_engine_behind_the_server() -> None:
    with serving(Failing(RetrievalError("disk gone"), None)) as url:
        with pytest.raises(RetrievalError, match="HTTP 502") as caught:
            HttpRetriever(url).search(["mona"], 1)
        assert caught.value.transient
        assert passages_of(HttpRetriever(url).search(["mona"], 1))[0][0].id == "p1"


def drip(connection: socket.socket) -> None:
    """One byte now and then: the socket's own time-out never strikes."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:  # until the client hangs up
        connection.sendall(b" ")
        time.sleep(0.1)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for n in itertools.count():
        connection.sendall(f"X-{n}: y\r\n".encode())
        time.sleep(1.0 if n > 90 else 0.1)  # slower before the client's limit of 100 headers


def slam(connection: socket.socket) -> None:
    connection.close()


GOOD = json.dumps({"result": [[{"document": {"id": 7, "contents": '"T"\nx'}, "score": 1}]]}).encode()
CHAOS: dict[str, tuple[Reply, bool]] = {
    # what the server does, and whether asking again may help
    "html": (answer(b"<html>gateway</html>"), True),
    "empty": (answer(b""), True),
    "500": (answer(b"oops", "500 Internal Server Error"), True),
    "503": (answer(b"", "503 Service Unavailable"), True),
    "404": (answer(b"", "404 Not Found"), False),
    "redirect": (answer(b"", "302 Found"), False),
    "half an answer": (answer(GOOD[:20], length=len(GOOD)), True),
    "cut json": (answer(GOOD[:-3]), True),
    "too few results": (answer(b'{"result": []}'), True),
    "too many results": (answer(b'{"result": [[], []]}'), True),
    "no result": (answer(b'{"results": [[]]}'), True),
    "a list": (answer(b"[]"), True),
    "hits that are no lists": (answer(b'{"result": ["x"]}'), True),
    "hits without text": (answer(b'{"result": [[{"document": {"id": 1}}]]}'), True),
    "deep json": (answer(b"[" * 100_000), True),
    "not utf-8": (answer(b'{"result": "\xff"}'), True),
    "not http": (lambda connection: connection.sendall(b"\x00\x01\x02 hello\r\n\r\n"), True),
    "slams the door": (slam, True),
    "hangs": (hang, True),
    "drips": (drip, True),
    "drips headers": (drip_headers, True),
}


@pytest.mark.timeout(30)  # some servers above go on until the client hangs up: without a deadline this never ends
@pytest.mark.parametrize("name", CHAOS)
def test_chaos(name: str) -> None:
    reply, transient = CHAOS[name]
    with raw_server(reply) as url:
        with pytest.raises(RetrievalError) as caught:
            HttpRetriever(url, timeout=0.5).search(["x"], 1)
        assert caught.value.transient is transient
        assert str(caught.value)
    del caught
    gc.collect()  # a socket left open would be told here, as an error


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RetrievalError, match="ConnectionRefused"):
        HttpRetriever(f"http://127.0.0.1:{port}").search(["x"], 1)


def test_a_flapping_server_is_survived_by_retries() -> None:
    calls = iter(range(100))

    def flap(connection: socket.socket) -> None:
        (answer(GOOD) if next(calls) % 3 == 2 else slam)(connection)

    with raw_server(flap) as url:
        waits: list[float] = []
        retriever = Retries(HttpRetriever(url, timeout=1.0), times=2, seed=0, sleep=waits.append)
        for _ in range(4):
            assert retriever.search(["x"], 1) == [[Passage("7", "T", "x", 1.0)]]
        assert len(waits) == 8
        assert all(0 <= wait <= 0.4 for wait in waits)
        assert len(set(waits)) > 4  # jitter


def test_an_environment_over_a_dead_server_goes_on() -> None:
    with raw_server(slam) as url:
        env = SearchQAVectorEnv(
            [Question("q", "?", ("x",))], resilient(HttpRetriever(url, timeout=0.5), retries=0), 2, max_turns=2
        )
        env.reset(seed=0)
        for _ in range(2):
            _, _, _, truncated, info = env.step(["<think>a</think><search>b</search>"] * 2)
            assert info["retrieval_failed"].all()
            assert not info["searches"].any()
        assert truncated.all()


def test_long_answers_are_cut_to_k_and_unscored_ones_are_read() -> None:
    found = [
        {"id": "a", "contents": "T\nx"},
        {"document": {"title": "U", "text": "y"}, "score": None},
        {"id": "c", "contents": "z"},
    ]
    [hits] = passages_of(read_answer(json.dumps({"result": [found]}).encode(), 1, 2))
    assert [(hit.title, hit.text) for hit in hits] == [("T", "x"), ("U", "y")]
    assert math.isnan(hits[0].score)
    assert len({hit.id for hit in hits}) == 2


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", ""])
def test_wrong_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        HttpRetriever(url)


def test_retries_are_bounded_and_spare_permanent_failures() -> None:
    down = Failing(RetrievalError("down"))
    waits: list[float] = []
    with pytest.raises(RetrievalError, match="down"):
        Retries(down, times=3, base_seconds=1.0, max_seconds=2.0, seed=1, sleep=waits.append).search(["x"], 1)
    assert down.calls == 4
    assert len(waits) == 3
    assert max(waits) <= 2
    wrong = Failing(RetrievalError("no such path", transient=False))
    with pytest.raises(RetrievalError, match="no such path"):
        Retries(wrong, times=3, sleep=waits.append).search(["x"], 1)
    assert wrong.calls == 1


def test_circuit_breaker_stops_asking_and_tries_again() -> None:
    now = [0.0]
    engine = Failing(*[RetrievalError("down")] * 4, None)
    breaker = CircuitBreaker(engine, failures=3, cooldown=10.0, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(RetrievalError, match="down"):
            breaker.search(["mona"], 1)
    for _ in range(5):
        with pytest.raises(RetrievalError, match="3 times in a row"):
            breaker.search(["mona"], 1)
    assert engine.calls == 3  # open: nobody was asked
    now[0] = 10.5
    with pytest.raises(RetrievalError, match="down"):  # the probe fails
        breaker.search(["mona"], 1)
    with pytest.raises(RetrievalError, match="in a row"):
        breaker.search(["mona"], 1)
    now[0] = 21.0
    assert passages_of(breaker.search(["mona"], 1))[0][0].id == "p1"
    assert passages_of(breaker.search(["mona"], 1))[0][0].id == "p1"
    assert engine.calls == 6


@pytest.mark.timeout(30)
def test_time_limit() -> None:
    released = threading.Event()

    class Slow:
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            if queries == ["hang"]:
                released.wait()
            return [[]]

    limited = TimeLimit(Slow(), seconds=0.1, max_abandoned=1)
    assert limited.search(["x"], 1) == [[]]
    for _ in range(2):
        with pytest.raises(RetrievalError, match=r"within 0\.1 s"):
            limited.search(["hang"], 1)
    with pytest.raises(RetrievalError, match="still hanging"):
        limited.search(["x"], 1)
    released.set()
    with pytest.raises(ZeroDivisionError):  # a bug is no failed search
        TimeLimit(Failing(ZeroDivisionError())).search(["x"], 1)
