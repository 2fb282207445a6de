"""A search engine of your own: any object with `search(queries, k)`.

`python examples/my_retriever.py` asks three questions over a corpus of four passages with a retriever that counts
shared words, behind a cache.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from a2tgpo.envs import Passage, Question, SearchQAEnv
from a2tgpo.envs.retrieval import Cache
from a2tgpo.errors import RetrievalError

PASSAGES = [
    Passage("1", "Ada Lovelace", "Ada Lovelace was a mathematician. Her father was Lord Byron."),
    Passage("2", "Lord Byron", "Lord Byron was a poet. He was born in London."),
    Passage("3", "London", "London is a city on the Thames."),
    Passage("4", "Paris", "Paris is a city on the Seine."),
]
QUESTIONS = [
    Question("q1", "Who was the father of Ada Lovelace?", ("Lord Byron", "Byron"), supporting=("1",), hops=1),
    Question("q2", "Where was the father of Ada Lovelace born?", ("London",), supporting=("1", "2"), hops=2),
    Question("q3", "On which river does Paris lie?", ("Seine", "the Seine"), supporting=("4",), hops=1),
]


class SharedWords:
    """Ranks passages by the words that they share with the query."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """The best `k` passages per query. A query that fails alone has its error in their place; what fails altogether
        should raise a `RetrievalError`. Either way the agent is told and the run continues.
        """
        return [self._best(query, k) for query in queries]

    def _best(self, query: str, k: int) -> list[Passage] | RetrievalError:
        wanted = set(query.lower().split())
        if not wanted:
            return RetrievalError("got an empty query", transient=False)
        scored = [
            replace(passage, score=float(len(wanted & set(f"{passage.title} {passage.text}".lower().split()))))
            for passage in self.passages
        ]
        return [passage for passage in sorted(scored, key=lambda passage: -passage.score) if passage.score > 0][:k]


def main() -> list[tuple[str, ...]]:
    """Ask every question once; the ids of the passages found."""
    with tempfile.TemporaryDirectory() as folder:
        env = SearchQAEnv(
            QUESTIONS, Cache(SharedWords(PASSAGES), Path(folder) / "cache.db", "shared words, 4 passages"), top_k=2
        )
        found = []
        for question in QUESTIONS:
            env.reset(options={"question_id": question.id})
            text, _, _, _, info = env.step(f"<think> I search. </think><search> {question.text.strip('?')} </search>")
            print(
                f"{question.text} -> {info['passage_ids']}, information gain {info['information_gain']:+.2f} nats{text}"
            )
            found.append(info["passage_ids"])
    return found


if __name__ == "__main__":
    main()
