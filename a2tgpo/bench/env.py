"""How fast the environment steps: `a2tgpo bench env`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
from gymnasium.vector import AutoresetMode

from a2tgpo.envs import Passage, Question, SearchQAVectorEnv
from a2tgpo.envs.retrieval import Bm25Retriever, Retriever
from a2tgpo.envs.retrieval.base import Found
from a2tgpo.envs.retrieval.text import terms

_VOCABULARY = 40_000
_WORDS = 60
"""Words per passage, about the length of a paragraph without its stop words."""
_SEARCHES = 3
"""Searches per episode, then an answer."""


@dataclass(frozen=True, slots=True)
class EnvRow:
    """One measurement."""

    search: str
    """Whose search: ours, or that of bm25s, which is the baseline."""
    num_envs: int
    passages: int
    steps: int
    steps_per_second: float
    steps_per_cpu_second: float
    """The same per second of this process's own time, which other work on the machine does not distort."""
    retrieval_share: float
    """Part of the time that the retriever took."""
    retriever_calls: int


class _PlainBm25s:
    """bm25s through its own `retrieve`."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.index = bm25s.BM25(method="lucene")
        self.index.index([terms(f"{passage.title} {passage.text}") for passage in passages], show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        rows, _ = self.index.retrieve([terms(query) for query in queries], k=k, show_progress=False)
        return [[self.passages[row] for row in found] for found in rows.tolist()]


class _Timed:
    """Adds up the time that a retriever takes."""

    def __init__(self, inner: Retriever) -> None:
        self.inner = inner
        self.seconds = 0.0
        self.calls = 0

    def search(self, queries: Sequence[str], k: int) -> Sequence[Found]:
        started = time.perf_counter()
        found = self.inner.search(queries, k)
        self.seconds += time.perf_counter() - started
        self.calls += 1
        return found


def synthetic_corpus(size: int, seed: int = 0) -> list[Passage]:
    """Passages of random words with natural (Zipf) frequencies: the same cost as real text, at any size."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, _VOCABULARY + 1)
    numbers = rng.choice(_VOCABULARY, size=(size, _WORDS), p=weights / weights.sum())
    return [
        Passage(f"p{row}", f"{_word(line[0])} {_word(line[1])}", " ".join(map(_word, line)))
        for row, line in enumerate(numbers.tolist())
    ]


def synthetic_queries(count: int, seed: int = 1) -> list[str]:
    """Queries of four to eight words with the corpus's frequencies."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, _VOCABULARY + 1)
    numbers = rng.choice(_VOCABULARY, size=(count, 8), p=weights / weights.sum())
    return [
        " ".join(map(_word, line[: int(length)]))
        for line, length in zip(numbers.tolist(), rng.integers(4, 9, size=count), strict=True)
    ]


def bench_env(
    sizes: Sequence[int] = (1, 64, 1_024), passages: int = 18_000, steps: int = 6_000, scorer: str | None = None
) -> list[EnvRow]:
    """Steps per second of the batched environment over a synthetic corpus, one row per number of environments.

    Every episode makes three searches with different queries and answers; nothing is cached.
    """
    corpus = synthetic_corpus(passages)
    retriever = Bm25Retriever(corpus)
    questions = [Question(f"q{i}", f"What is {i}?", (corpus[i % passages].title,)) for i in range(64)]
    rows = [_measure("a2tgpo", num_envs, retriever, questions, steps, scorer) for num_envs in sizes]
    return [
        *rows,
        *(
            _measure("bm25s", num_envs, _PlainBm25s(corpus), questions, steps // 4, scorer)
            for num_envs in sizes
            if num_envs > 1
        ),
    ]


def _measure(
    name: str,
    num_envs: int,
    retriever: Bm25Retriever | _PlainBm25s,
    questions: Sequence[Question],
    steps: int,
    scorer: str | None,
) -> EnvRow:
    timed = _Timed(retriever)
    env = SearchQAVectorEnv(
        questions, timed, num_envs, scorer=scorer, protocol="tags", autoreset_mode=AutoresetMode.SAME_STEP
    )
    rounds = max(1, steps // num_envs)
    queries = iter(synthetic_queries(rounds * num_envs))
    answer = ["<think>done</think><answer>x</answer>"] * num_envs
    actions = [
        (
            answer
            if turn % (_SEARCHES + 1) == _SEARCHES
            else [f"<think>next</think><search>{next(queries)}</search>" for _ in range(num_envs)]
        )
        for turn in range(rounds)
    ]
    env.reset(seed=0)
    started, started_cpu = time.perf_counter(), time.process_time()
    for texts in actions:
        env.step(texts)
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    taken = rounds * num_envs
    return EnvRow(
        name,
        num_envs,
        len(retriever.passages),
        taken,
        taken / seconds,
        taken / cpu,
        timed.seconds / seconds,
        timed.calls,
    )


def _word(number: int) -> str:
    return f"w{number}x"
