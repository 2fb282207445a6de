"""A world: named entities of a few kinds and the functional relations between them.

Three worlds are built from the same schema: the real one (`real_world`), the same graph with every name replaced by an
invented one (`renamed`), and small ones whose relations are redrawn over invented names (`drawn_world`), of which a
policy can see many without ever being able to remember an answer.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from random import Random

from a2tgpo.envs.almanac.names import invented_names

FACTS = "facts.jsonl"


@dataclass(frozen=True, slots=True)
class Relation:
    """One functional relation: every subject has at most one object."""

    name: str
    """The word that questions, passages and queries use."""
    domain: str
    """Kind of the subject."""
    range: str
    """Kind of the object."""
    source: str = ""
    """Its name in the fact file; empty for relations that are derived."""


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation("birthplace", "person", "city", "birth city"),
        Relation("homeland", "person", "country", "birth country"),
        Relation("field", "person", "field", "Nobel category"),
        Relation("year", "person", "year", "Nobel year"),
        Relation("country", "city", "country", "country"),
        Relation("capital", "country", "city", "capital"),
        Relation("currency", "country", "currency", "currency"),
        Relation("continent", "country", "continent", "continent"),
        Relation("region", "country", "region", "subregion"),
        Relation("demonym", "country", "demonym", "demonym"),
        Relation("domain", "country", "domain", "top-level domain"),
        Relation("code", "country", "code", "calling code"),
        Relation("neighbour", "country", "country", "borders"),
        Relation("symbol", "element", "symbol", "symbol"),
        Relation("number", "element", "number", "atomic number"),
        Relation("origin", "element", "country", "discovery country"),
        Relation("discovery", "element", "year", "discovery year"),
        Relation("successor", "element", "element"),
        Relation("employer", "person", "company"),
        Relation("seat", "company", "city"),
    )
}
"""`birthplace` is a city and `homeland` a country; `neighbour` exists only where a country borders exactly one other by
land; `origin` is the country in which an element was discovered and `discovery` the year; `successor` is the element
with the next atomic number; `field` and `year` are those of a prize.
Only drawn worlds have companies.
"""

NUMERIC = frozenset({"year", "number", "code"})
"""Kinds whose names are figures: renaming shuffles them among themselves instead of inventing words."""

SPARE = 20
"""Invented names made in excess, to replace those that exist."""

DRAWN = {"person": 48, "company": 20, "city": 24, "country": 16, "currency": 10, "region": 8, "field": 6}
"""Entities of each kind in a small drawn world."""

DRAWN_RELATIONS = ("birthplace", "employer", "field", "seat", "country", "capital", "currency", "region", "neighbour")
"""Relations of a small drawn world."""


@dataclass(frozen=True, slots=True)
class World:
    """A typed entity–relation graph."""

    key: str
    """Names the corpus of this world and starts the ids of its questions and passages."""
    kinds: Mapping[str, str]
    """Entity name → kind."""
    facts: Mapping[str, Mapping[str, str]]
    """Subject → relation name → object."""

    def follow(self, subject: str, relation: str) -> str | None:
        """The object of `relation` for `subject`, or None where the world knows none."""
        return self.facts.get(subject, {}).get(relation)


def read_facts() -> list[tuple[str, str, str]]:
    """The vendored fact file as (subject, relation, object) rows, in file order."""
    text = resources.files(__package__).joinpath(FACTS).read_text(encoding="utf-8")
    return [(subject, relation, obj) for subject, relation, obj in map(json.loads, text.strip().split("\n"))]


def real_world(key: str = "earth") -> World:
    """The world of the fact file. Relations with several objects for a subject are left out for that subject, so every
    chain has one answer.
    """
    objects: dict[tuple[str, str], list[str]] = defaultdict(list)
    for subject, source, obj in read_facts():
        if obj not in objects[subject, source]:
            objects[subject, source].append(obj)
    unique = {pair: found[0] for pair, found in objects.items() if len(found) == 1}
    kinds = _subject_kinds(objects)
    facts: dict[str, dict[str, str]] = defaultdict(dict)
    for relation in RELATIONS.values():
        for (subject, source), obj in unique.items():
            if source == relation.source and kinds[subject] == relation.domain:
                facts[subject][relation.name] = obj
                kinds.setdefault(obj, relation.range)
    _drop_contradictions(facts, kinds)
    _add_successors(facts)
    return World(key, kinds, {subject: facts[subject] for subject in facts if facts[subject]})


def _subject_kinds(objects: Mapping[tuple[str, str], object]) -> dict[str, str]:
    """Kind of every subject. Where a name is both (Armenia is a country and a city of Colombia), the country wins."""
    kinds: dict[str, str] = {}
    for source, kind in (("capital", "country"), ("symbol", "element"), ("Nobel year", "person"), ("country", "city")):
        for subject, relation in objects:
            if relation == source:
                kinds.setdefault(subject, kind)
    return kinds


def _drop_contradictions(facts: dict[str, dict[str, str]], kinds: Mapping[str, str]) -> None:
    """Leave out objects of the wrong kind (a city named like a country) and birthplaces that lie elsewhere today or are
    named like another city.
    """
    for known in facts.values():
        for name in [name for name, obj in known.items() if kinds[obj] != RELATIONS[name].range]:
            del known[name]
        place = known.get("birthplace")
        if place in facts and facts[place].get("country") != known.get("homeland"):
            del known["birthplace"]


def _add_successors(facts: Mapping[str, dict[str, str]]) -> None:
    by_number = {int(known["number"]): subject for subject, known in facts.items() if "number" in known}
    for number, subject in by_number.items():
        if number + 1 in by_number:
            facts[subject]["successor"] = by_number[number + 1]


def renamed(world: World, seed: int, key: str = "fiction") -> World:
    """The same graph with every name replaced, consistently, by an invented one; figures are shuffled among figures of
    their kind.
    """
    rng = Random(f"renamed {seed}")
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, kind in world.kinds.items():
        by_kind[kind].append(name)
    new: dict[str, str] = {}
    for kind, names in by_kind.items():
        replacements = list(names) if kind in NUMERIC else _unused(kind, len(names), world)
        rng.shuffle(replacements)
        new.update(zip(names, replacements, strict=True))
    facts = {new[subject]: {name: new[obj] for name, obj in known.items()} for subject, known in world.facts.items()}
    return World(key, {new[name]: kind for name, kind in world.kinds.items()}, facts)


def _unused(kind: str, size: int, world: World) -> list[str]:
    """Invented names, skipping those that happen to exist in `world`."""
    return [name for name in invented_names(kind, size + SPARE) if name not in world.kinds][:size]


def drawn_world(seed: int, index: int) -> World:
    """A small world over the invented names: which entities of the inventory exist, and every relation, are drawn from
    (seed, index).
    """
    rng = Random(f"drawn {seed} {index}")
    members = {kind: rng.sample(invented_names(kind, inventory_size(kind)), size) for kind, size in DRAWN.items()}
    kinds = {name: kind for kind, names in members.items() for name in names}
    facts: dict[str, dict[str, str]] = {name: {} for name in kinds}
    for relation in map(RELATIONS.__getitem__, DRAWN_RELATIONS):
        objects = _spread(members[relation.range], len(members[relation.domain]), rng)
        for position, subject in enumerate(members[relation.domain]):
            obj = objects[position]
            if obj == subject:  # nothing borders itself
                obj = next(name for name in members[relation.range] if name != subject)
            facts[subject][relation.name] = obj
    for country in members["country"]:  # a capital lies in its country
        facts[facts[country]["capital"]]["country"] = country
    return World(f"fiction-{index:02d}", kinds, {subject: known for subject, known in facts.items() if known})


def _spread(names: list[str], size: int, rng: Random) -> list[str]:
    """`size` draws that use every name about equally often, so that no answer is a good guess."""
    draws: list[str] = []
    while len(draws) < size:
        draws.extend(rng.sample(names, len(names)))
    return draws[:size]


def inventory_size(kind: str) -> int:
    """How many names of a kind exist over all drawn worlds: twice what one world holds."""
    return 2 * DRAWN[kind]


def drawn_names() -> list[str]:
    """Every name that any drawn world may use, in a fixed order: a closed vocabulary."""
    return [name for kind in DRAWN for name in invented_names(kind, inventory_size(kind))]
