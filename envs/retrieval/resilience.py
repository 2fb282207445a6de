"""What stands around a search engine that can fail: a time limit, retries, and a circuit breaker.

Each is a retriever around a retriever; `resilient` puts them together in the right order. All raise `RetrievalError`
and nothing else on failure, so a training run sees labelled observations instead of a crash or a hang.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from a2tgpo.checks import check_number, check_whole
from a2tgpo.envs.retrieval.base import Found, Retriever, check_retriever, raise_if_all_failed
from a2tgpo.errors import RetrievalError

Clock = Callable[[], float]
Sleep = Callable[[float], None]


class TimeLimit:
    """Gives up on a call after `seconds`.

    The abandoned call runs on in a daemon thread, since a thread cannot be ended; while too many of them hang, new
    calls fail at once.
    """

    def __init__(self, inner: Retriever, seconds: float = 30.0, max_abandoned: int = 8) -> None:
        check_retriever(inner)
        check_whole("TimeLimit.max_abandoned", max_abandoned, 0)
        self.inner = inner
        self.seconds = check_number("TimeLimit.seconds", seconds, low=1e-3)
        self._slots = threading.BoundedSemaphore(max_abandoned + 1)

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`."""
        if not self._slots.acquire(blocking=False):
            raise RetrievalError("too many searches are still hanging; the engine does not answer")
        outcome: list[Sequence[Found] | BaseException] = []
        thread = threading.Thread(target=self._run, args=(queries, k, outcome), daemon=True)
        thread.start()
        thread.join(self.seconds)
        if not outcome:
            raise RetrievalError(f"no answer within {self.seconds:g} s")
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def _run(self, queries: Sequence[str], k: int, outcome: list[Sequence[Found] | BaseException]) -> None:
        try:
            outcome.append(self.inner.search(queries, k))
        except BaseException as error:  # carried over to the calling thread, which raises it
            outcome.append(error)
        finally:
            self._slots.release()


class Retries:
    """Asks the queries whose failure may pass again, at most `times` times, after a random wait below an exponentially
    growing limit.
    """

    def __init__(
        self,
        inner: Retriever,
        times: int = 2,
        base_seconds: float = 0.2,
        max_seconds: float = 5.0,
        seed: int | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        check_retriever(inner)
        self.inner = inner
        self.times = check_whole("Retries.times", times, 0)
        self.base_seconds = check_number("Retries.base_seconds", base_seconds, low=0.0)
        self.max_seconds = check_number("Retries.max_seconds", max_seconds, low=0.0)
        self._random = random.Random(seed)
        self._sleep = sleep

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`."""
        found: list[Found] = [RetrievalError("not asked yet")] * len(queries)
        for attempt in range(self.times + 1):
            again = [place for place, hits in enumerate(found) if isinstance(hits, RetrievalError) and hits.transient]
            if not again:
                break
            if attempt:
                self._sleep(self._random.uniform(0, min(self.max_seconds, self.base_seconds * 2 ** (attempt - 1))))
            for place, hits in zip(again, self._ask([queries[place] for place in again], k), strict=True):
                found[place] = hits
        return raise_if_all_failed(found)

    def _ask(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        try:
            return self.inner.search(queries, k)
        except RetrievalError as error:
            return [error] * len(queries)


class CircuitBreaker:
    """Stops asking an engine that is down.

    After `failures` failed calls in a row every call fails at once for `cooldown` seconds, then one call is let
    through.
    """

    def __init__(
        self, inner: Retriever, failures: int = 5, cooldown: float = 10.0, clock: Clock = time.monotonic
    ) -> None:
        check_retriever(inner)
        self.inner = inner
        self.failures = check_whole("CircuitBreaker.failures", failures, 1)
        self.cooldown = check_number("CircuitBreaker.cooldown", cooldown, low=0.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_until = 0.0

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        """See `Retriever.search`."""
        with self._lock:
            if self._failed >= self.failures:
                left = self._closed_until - self._clock()
                if left > 0:
                    raise RetrievalError(
                        f"the engine failed {self._failed} times in a row; it is asked again in {left:.1f} s",
                        transient=False,
                    )
                self._closed_until = self._clock() + self.cooldown  # this call is the probe, others wait for it
        try:
            found = self.inner.search(queries, k)
        except RetrievalError:
            with self._lock:
                self._failed += 1
                self._closed_until = self._clock() + self.cooldown
            raise
        with self._lock:
            self._failed = 0
        return found


def resilient(retriever: Retriever, *, retries: int = 2, failures: int = 5, cooldown: float = 10.0) -> CircuitBreaker:
    """Retries inside a circuit breaker, so that one call counts once however often it was tried. Add `TimeLimit` inside
    for engines without a deadline.
    """
    return CircuitBreaker(Retries(retriever, retries), failures, cooldown)
