"""The embedded world: facts, passages and questions of one to four hops, on every machine and without a download.

    questions, corpora = load(split="train")  # the real world: countries, cities, elements, laureates
    questions, corpora = load(split="train", fictional=True)       # the same graph under invented names
    questions, corpora = load(split="train", fictional=True, worlds=30)  # thirty small worlds, other facts in each

No split shares a subject with another. The facts and their sources are described in `ATTRIBUTION.md`.
"""

from collections.abc import Collection, Sequence
from random import Random

from a2tgpo.checks import check_flag, check_whole
from a2tgpo.envs.almanac.expert import HABITS, MISTAKES, ErrorModel, Expert
from a2tgpo.envs.almanac.passages import Fact, read_passage, write_passages
from a2tgpo.envs.almanac.questions import MAX_HOPS, SPLITS, ask, split_of
from a2tgpo.envs.almanac.world import (
    DRAWN_RELATIONS,
    RELATIONS,
    Relation,
    World,
    drawn_names,
    drawn_world,
    real_world,
    renamed,
)
from a2tgpo.envs.records import Passage, Question
from a2tgpo.errors import ConfigError

__all__ = [
    "DRAWN_RELATIONS",
    "HABITS",
    "MISTAKES",
    "RELATIONS",
    "ErrorModel",
    "Expert",
    "Fact",
    "Relation",
    "World",
    "drawn_names",
    "drawn_world",
    "load",
    "make_worlds",
    "read_passage",
    "real_world",
    "renamed",
    "split_of",
    "write_passages",
]


def load(
    split: str = "train", fictional: bool = False, seed: int = 0, worlds: int = 1, hops: Sequence[int] = (1, 2, 3, 4)
) -> tuple[list[Question], dict[str, list[Passage]]]:
    """Questions of a split in a seeded order, and the passages of every world by `Question.corpus`.

    All splits search the same passages. Every number of `hops` is asked equally often.

    Args:
        split: `train`, `validation` or `test`.
        fictional: replace every name by an invented one, so that no pretrained model can know an answer.
        seed: of the invented names, of drawn worlds and of the order of the questions.
        worlds: 1 is the world of the fact file. More, for fictional worlds only, are small and have drawn relations:
            what a policy remembers of one is wrong in the next.
        hops: lengths of the chains, each from 1 to 4.

    Raises:
        ConfigError: for an unknown split, other lengths, fewer than one world, or several worlds that are not
            fictional.
    """
    check_flag("fictional", fictional)
    check_whole("seed", seed, 0)
    if split not in SPLITS:
        raise ConfigError(f"split: got {split!r}, expected one of {', '.join(SPLITS)}")
    if not isinstance(hops, Collection) or not hops or not set(hops) <= set(range(1, MAX_HOPS + 1)):
        raise ConfigError(f"hops: got {hops!r}, expected a sequence of whole numbers from 1 to {MAX_HOPS}")
    made = make_worlds(fictional, seed, worlds)
    questions = [
        question
        for world in made
        for question in ask(world, split, sorted(set(hops)), Random(f"{split} {seed} {world.key}"))
    ]
    Random(f"order {split} {seed}").shuffle(questions)
    return questions, {world.key: write_passages(world) for world in made}


def make_worlds(fictional: bool = False, seed: int = 0, worlds: int = 1) -> list[World]:
    """The worlds that `load` asks about.

    Raises:
        ConfigError: for fewer than one world, or several worlds that are not fictional.
    """
    check_whole("worlds", worlds, 1)
    if worlds == 1:
        return [renamed(real_world(), seed) if fictional else real_world()]
    if not fictional:
        raise ConfigError(
            f"worlds: got {worlds} with fictional=False, but there is only one real world; set fictional=True or"
            " worlds=1"
        )
    return [drawn_world(seed, index) for index in range(worlds)]
