"""The random agent: what acting without any idea is worth."""

from a2tgpo.baselines.script import Opening, Script, answer, search
from a2tgpo.envs.entities import asked_about, content_words, entities


def uniform(opening: Opening) -> Script:
    """Every turn one action drawn uniformly from all: search an entity seen so far, alone or with a word of the
    question, or answer with an entity.
    """
    words = ["", *content_words(opening.question.text)]
    known = asked_about(opening.question.text) or [opening.question.text]
    while True:
        place, about = opening.rng.randrange(len(words) + 1), opening.rng.choice(known)
        if place == len(words):
            yield from answer(opening, about)
            return
        seen = yield from search(opening, f"{about} {words[place]}".strip())
        known = list(dict.fromkeys([*known, *entities(" . ".join(passage.text for passage in seen.passages))]))
