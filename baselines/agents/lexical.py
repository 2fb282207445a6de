"""The agent that matches words: one search with the question, and the entity that stands closest to the question's
words.
"""

import re
from collections import Counter
from collections.abc import Sequence

from a2tgpo.baselines.script import Opening, Script, answer, search
from a2tgpo.envs.entities import asked_about, entities, words
from a2tgpo.envs.records import Passage

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def lexical(opening: Opening) -> Script:
    """Search with the question as it is, then answer with the best extracted span."""
    seen = yield from search(opening, opening.question.text)
    yield from answer(opening, best_span(opening.question.text, seen.passages))


def best_span(question: str, passages: Sequence[Passage]) -> str:
    """The entity with the highest score among those that the question does not name; "" if there is none.

    A sentence at rank r that shares n words with the question adds n / r to each entity in it; ties go to the one
    mentioned first.
    """
    wanted, named = set(words(question)), {name.lower() for name in asked_about(question)}
    scores: Counter[str] = Counter()
    for rank, passage in enumerate(passages, start=1):
        for sentence in _SENTENCE.split(passage.text):
            shared = len(wanted.intersection(words(f"{passage.title} {sentence}")))
            for entity in entities(sentence):
                if entity.lower() not in named:
                    scores[entity] += shared / rank  # type: ignore[assignment]
    return max(scores, key=lambda entity: scores[entity], default="")
