"""Invented names: pronounceable, unique over all kinds, the same in every process."""

from functools import cache
from itertools import count
from random import Random

ONSETS = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "kl",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "r",
    "s",
    "sk",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
)
VOWELS = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
ENDINGS: dict[str, tuple[str, ...]] = {
    "given": ("a", "en", "o", "is"),
    "family": ("er", "ok", "ann", "ild"),
    "company": ("co", "tech"),
    "city": ("ford", "wick", "by", "stad"),
    "country": ("ia", "land", "ora"),
    "element": ("ium", "on"),
    "currency": ("ar", "ek"),
    "region": ("mark", "shire"),
    "continent": ("ea", "ania"),
    "demonym": ("ish", "ese"),
    "domain": ("net", "web"),
    "symbol": ("x", "q"),
    "field": ("ics", "ology"),
}
"""Endings tell a reader what kind of thing a name is; no two kinds share one, so no name can mean two things."""


@cache
def _words(kind: str, size: int) -> tuple[str, ...]:
    rng = Random(f"names of {kind}")
    found: dict[str, None] = {}
    for attempt in count():
        if len(found) == size:
            break
        syllables = 1 if attempt < 4 * size else 2  # short words first, longer ones where a kind needs thousands
        stem = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables))
        found[(stem + rng.choice(ONSETS)[0] + rng.choice(ENDINGS[kind])).capitalize()] = None
    return tuple(found)


@cache
def _people(size: int) -> tuple[str, ...]:
    """Given name × family name over inventories as small as they can be, so that many people share a word with
    others.
    """
    side = max(2, int(size**0.5) + 1)
    given, family = _words("given", side), _words("family", side)
    pairs = [f"{first} {last}" for first in given for last in family]
    return tuple(Random(f"people {size}").sample(pairs, size))


def invented_names(kind: str, size: int) -> list[str]:
    """The first `size` names of a kind. People have two words (given, family), everything else has one.

    Raises:
        KeyError: the kind has no inventory (figures are not invented).
    """
    return list(_people(size) if kind == "person" else _words(kind, size))
