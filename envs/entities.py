"""Names and figures in plain text, found by how they are written: what agents without a language model read."""

import re

_PARTICLES = r"(?:of|the|de|del|di|da|du|la|le|van|von|der|den|bin|ibn|al)"
_NAME = r"(?:(?:[^\W\d_a-z]\.)+|[^\W\d_a-z][\w’\-]*(?:\.\w+)*)"
_ENTITY = re.compile(rf"{_NAME}(?: (?:{_PARTICLES} ){{0,2}}{_NAME})*|\+?\d(?:[\d.,:/\-]*\d)?|(?<!\w)\.\w+")
_TAG = re.compile(r"</?[A-Za-z_]+>")
_POSSESSIVE = re.compile(r"['’]s\b")
_OWNER = re.compile(r"([^\W_][\w\-]*)['’]s\b")
_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an the of in on at to for from by with and or as is are was were be been do does did has have had it its he"
        " his she her they their that this these those what which who whom whose where when why how many much question"
        " name named called s"
    )
)
"""Words that start a question or join its parts; none of them is a name or says what is asked for."""


def entities(text: str) -> list[str]:
    """Names (runs of capitalised words) and figures, in order of first mention, each once; tags and possessive endings
    are left out.

    >>> entities("Mara Venn's birthplace is Kloford. She was born in 1921.")
    ['Mara Venn', 'Kloford', '1921']
    """
    plain = _POSSESSIVE.sub(" |", _TAG.sub(" | ", text))
    found = (_without_function_words(match[0]) for match in _ENTITY.finditer(plain))
    return list(dict.fromkeys(entity for entity in found if entity))


def asked_about(question: str) -> list[str]:
    """The entities of a question; where none is capitalised, the first owner ("helium" in "What is helium's
    symbol?").
    """
    found = entities(question)
    owner = _OWNER.search(question)
    return found or ([owner[1]] if owner else [])


def content_words(question: str) -> list[str]:
    """Words of a question that are neither function words nor part of an entity, in order, each once: what is asked
    about the entities.

    >>> content_words("What is Mara Venn's birthplace's country?")
    ['birthplace', 'country']
    """
    names = {word for entity in asked_about(question) for word in words(entity)}
    return [word for word in words(_POSSESSIVE.sub("", question)) if word not in names]


def words(text: str) -> list[str]:
    """Lower-case words of a text without function words, in order, each once."""
    found = (match[0].lower() for match in _WORD.finditer(text))
    return list(dict.fromkeys(word for word in found if word not in _FUNCTION_WORDS))


def _without_function_words(run: str) -> str:
    """A capitalised run without the question word that begins it, and without the mark that ends its sentence."""
    parts = run.rstrip(",:/-").split(" ")
    while parts and parts[0].lower() in _FUNCTION_WORDS:
        parts.pop(0)
    return " ".join(parts)
