"""Questions as chains of relations: "What is Mara Venn's birthplace's country's capital?"."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from a2tgpo.envs.almanac.passages import passage_id
from a2tgpo.envs.almanac.world import World
from a2tgpo.envs.records import Question

SHARES = (("train", 0.7), ("validation", 0.15), ("test", 0.15))
"""Share of the subjects in each split."""
SPLITS = tuple(name for name, _ in SHARES)
MAX_HOPS = 4
ENOUGH = 50
"""A rare chain length does not hold the others below so many questions."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A path through a world: `entities[0]` is asked about, `entities[-1]` is the answer, `relations[i]` leads from
    entity i to entity i + 1.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]


def split_of(key: str, subject: str) -> str:
    """The split of every question about this subject of this world: a hash decides, so no seed or option can move a
    subject to another split.
    """
    place = int.from_bytes(sha256(f"{key}/{subject}".encode()).digest()[:8]) / 2**64
    for name, share in SHARES:
        place -= share
        if place < 0:
            return name
    return SHARES[-1][0]


def chains(world: World, subject: str, max_hops: int = MAX_HOPS) -> Iterator[Chain]:
    """Every chain from `subject` that visits no entity and no relation twice."""
    stack = [Chain((subject,), ())]
    while stack:
        chain = stack.pop()
        if chain.relations:
            yield chain
        if len(chain.relations) == max_hops:
            continue
        for relation, obj in world.facts.get(chain.entities[-1], {}).items():
            circular = relation == "country" and chain.relations[-1:] == ("capital",)  # the country of its capital
            if obj not in chain.entities and relation not in chain.relations and not circular:
                stack.append(Chain((*chain.entities, obj), (*chain.relations, relation)))


def write_question(world: World, chain: Chain) -> Question:
    """The chain as a question; `supporting` lists the passage of every hop in order, `metadata` the chain itself."""
    subject, *_, answer = chain.entities
    path = "".join(f"'s {relation}" for relation in chain.relations)
    supporting = tuple(
        passage_id(world.key, entity, relation)
        for entity, relation in zip(chain.entities, chain.relations, strict=False)
    )
    return Question(
        id=f"{world.key}/{subject}/{'.'.join(chain.relations)}",
        text=f"What is {subject}{path}?",
        answers=(answer,),
        corpus=world.key,
        supporting=supporting,
        hops=len(chain.relations),
        type=".".join(chain.relations),
        metadata={"entities": chain.entities, "relations": chain.relations},
    )


def ask(world: World, split: str, hops: Sequence[int], rng: Random) -> list[Question]:
    """Questions about the split's subjects, shuffled, with every number of hops as often as the rarest, or `ENOUGH`
    times where that is very rare.
    """
    by_hops: dict[int, list[Chain]] = defaultdict(list)
    for subject in world.facts:
        if split_of(world.key, subject) == split:
            for chain in chains(world, subject, max(hops)):
                by_hops[len(chain.relations)].append(chain)
    size = max(ENOUGH, min(len(by_hops[length]) for length in hops))
    chosen = [chain for length in hops for chain in rng.sample(by_hops[length], min(size, len(by_hops[length])))]
    rng.shuffle(chosen)
    return [write_question(world, chain) for chain in chosen]
