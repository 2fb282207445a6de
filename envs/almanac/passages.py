"""Facts as passages, and back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from a2tgpo.envs.almanac.world import World
from a2tgpo.envs.records import Passage

SENTENCE = re.compile(r"(?P<subject>.+?)'s (?P<relation>\w+) is (?P<object>.+)\.")


@dataclass(frozen=True, slots=True)
class Fact:
    """One edge of a world."""

    subject: str
    relation: str
    object: str


def passage_id(key: str, subject: str, relation: str) -> str:
    """Id of the passage that states a fact."""
    return f"{key}/{subject}/{relation}"


def write_passages(world: World) -> list[Passage]:
    """One passage per fact, without a title, since the sentence names its subject. Other facts about the same entities
    are the distractors of every search.
    """
    return [
        Passage(id=passage_id(world.key, subject, relation), title="", text=f"{subject}'s {relation} is {obj}.")
        for subject, known in world.facts.items()
        for relation, obj in known.items()
    ]


def read_passage(text: str) -> Fact | None:
    """The fact that a passage of these worlds states, or None for any other text."""
    found = SENTENCE.fullmatch(text.strip())
    return Fact(found["subject"], found["relation"], found["object"]) if found else None


def read_passages(passages: Sequence[Passage]) -> list[Fact]:
    """Facts of the passages that can be read, in their order."""
    facts = (read_passage(passage.text) for passage in passages)
    return [fact for fact in facts if fact is not None]
