"""The ids that `gymnasium.make` knows.

Questions and corpora are loaded when an environment is made. Everything that `SearchQAEnv` takes by keyword can be passed to `gymnasium.make` as well.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from a2tgpo.envs.questions import Retrievers
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.retrieval import Bm25Retriever, RankBm25Retriever, Retriever
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.envs.vector import SearchQAVectorEnv

NAMESPACE = "a2tgpo"


def register_envs() -> None:
    """Register every id of this package with Gymnasium; harmless when called again (the plugin entry point and the import both do)."""
    for name in ("Almanac",):
        env_id = f"{NAMESPACE}/{name}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=f"{__name__}:make_almanac", vector_entry_point=f"{__name__}:make_almanac_vector")


def almanac(split: str, fictional: bool, seed: int, worlds: int, retriever: str) -> tuple[Sequence[Question], Retrievers]:
    """Questions of the embedded world and one retriever per corpus."""
    from a2tgpo.envs.almanac import load

    questions, corpora = load(split=split, fictional=fictional, seed=seed, worlds=worlds)
    return questions, {key: make_retriever(retriever, passages) for key, passages in corpora.items()}


def make_retriever(name: str, passages: Sequence[Passage]) -> Retriever:
    """The in-process backend of that name over a corpus.

    Raises:
        ValueError: for an unknown name or a corpus that cannot be searched.
    """
    backends: dict[str, Callable[[Sequence[Passage]], Retriever]] = {"bm25": Bm25Retriever, "rank_bm25": RankBm25Retriever}
    if name not in backends:
        raise ValueError(f"retriever: got {name!r}, expected one of {', '.join(backends)}")
    return backends[name](passages)


def make_almanac(split: str = "train", fictional: bool = False, seed: int = 0, worlds: int = 1, retriever: str = "bm25", **kwargs: Any) -> SearchQAEnv:
    """`gymnasium.make("a2tgpo/Almanac-v0")`: the embedded world. `fictional`, `seed` and `worlds` shape it, the rest goes to `SearchQAEnv`."""
    return SearchQAEnv(*almanac(split, fictional, seed, worlds, retriever), **kwargs)


def make_almanac_vector(
    num_envs: int = 1, split: str = "train", fictional: bool = False, seed: int = 0, worlds: int = 1, retriever: str = "bm25", **kwargs: Any
) -> SearchQAVectorEnv:
    """`gymnasium.make_vec("a2tgpo/Almanac-v0")`; arguments as for `make_almanac`."""
    return SearchQAVectorEnv(*almanac(split, fictional, seed, worlds, retriever), num_envs, **kwargs)
