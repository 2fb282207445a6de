"""The value of the gold answer after a transcript: what information gain is the change of."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from a2tgpo.checks import check_number
from a2tgpo.envs.records import Passage
from a2tgpo.envs.scoring.answers import normalize_text
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Exchange:
    """One finished turn of a transcript."""

    action: str
    """What the agent wrote, as it wrote it."""
    observation: str
    """What it was shown in return."""
    passages: tuple[Passage, ...] = ()
    """The passages inside the observation."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """One episode so far, as text."""

    question: str
    prompt: str
    """The first observation."""
    exchanges: tuple[Exchange, ...] = ()


Scorer = Callable[[Transcript, Sequence[str]], float]
"""(transcript, gold answers) -> value of the gold answer, natural log of a probability in the built-in scorer."""

_VOCABULARY_SIZE = 1 << 20
"""Word types that the background model thinks possible; one pseudo-word is spread over them, so every word has a
probability.
"""
_MAX_BACKGROUND = 50_000
"""The background model is counted on at most this many passages, evenly spaced over the corpus."""


class EvidenceScorer:
    """A unigram cache language model over the retrieved text, smoothed with the corpus (Dirichlet prior).

        p(w | shown) = (count of w in the shown passages + μ · p(w | corpus)) / (words shown + μ)

    The value of a gold answer is its mean log-probability per word, the best over the aliases. Before any search that
    is the corpus model; a passage with the answer raises it, passages without it lower it a little, and a passage that
    was shown before changes nothing.

    Args:
        passages: the corpus; may be empty, then the background is uniform.
        prior: μ, in words.
    """

    def __init__(self, passages: Iterable[Passage] = (), prior: float = 100.0) -> None:
        self.prior = check_number("EvidenceScorer.prior", prior, low=1e-9, hint=" of words")
        self._background: Counter[str] = Counter()
        for passage in passages:
            if not isinstance(passage, Passage):
                raise ConfigError(f"EvidenceScorer.passages: got {passage!r}, expected Passage(id, title, text)")
            self._background.update(_words(passage))
        self._total = self._background.total()

    def __call__(self, transcript: Transcript, answers: Sequence[str]) -> float:
        shown = {passage.id: passage for exchange in transcript.exchanges for passage in exchange.passages}
        counts = [_counts(passage.title, passage.text) for passage in shown.values()]
        length = sum(total for _, total in counts)
        return max(
            (self._logprob(answer, [count for count, _ in counts], length) for answer in answers), default=-math.inf
        )

    def _logprob(self, answer: str, counts: Sequence[Counter[str]], length: int) -> float:
        words = _answer_words(answer)
        if not words:
            return -math.inf
        logprobs = (
            math.log(
                (sum(c[word] for c in counts) + self.prior * self._background_probability(word)) / (length + self.prior)
            )
            for word in words
        )
        return math.fsum(logprobs) / len(words)

    def _background_probability(self, word: str) -> float:
        return (self._background[word] + 1 / _VOCABULARY_SIZE) / (self._total + 1)

    @staticmethod
    def of_corpora(corpora: Iterable[Sequence[Passage]]) -> "EvidenceScorer":
        """A scorer whose background is counted on all corpora together, on at most 50,000 passages of each."""
        return EvidenceScorer(passage for passages in corpora for passage in _sampled(passages))


def _sampled(passages: Sequence[Passage]) -> Iterable[Passage]:
    stride = max(1, math.ceil(len(passages) / _MAX_BACKGROUND))
    return (passages[row] for row in range(0, len(passages), stride))


def _words(passage: Passage) -> list[str]:
    return normalize_text(f"{passage.title} {passage.text}").split()


@lru_cache(maxsize=1 << 14)
def _counts(title: str, text: str) -> tuple[Counter[str], int]:
    words = normalize_text(f"{title} {text}").split()
    return Counter(words), len(words)


@lru_cache(maxsize=1 << 14)
def _answer_words(answer: str) -> tuple[str, ...]:
    # A gold of punctuation only is one word of its own.
    return tuple(normalize_text(answer).split()) or tuple(answer.split())
