"""The ids that `gymnasium.make` knows.

Questions and corpora are loaded when an environment is made. Everything that `SearchQAEnv` takes by keyword can be
passed to `gymnasium.make` as well.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from a2tgpo.envs.data.corpus import corpus_fingerprint, read_corpus
from a2tgpo.envs.data.datasets import OnBadRow, file_of_split, read, read_aliases, split_items, with_aliases
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.pool import Retrievers
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.retrieval import Bm25Retriever, LocalRetriever, RankBm25Retriever, Retriever
from a2tgpo.envs.retrieval.cache import Cache
from a2tgpo.envs.retrieval.http import HttpRetriever
from a2tgpo.envs.retrieval.resilience import resilient
from a2tgpo.envs.retrieval.store import is_index
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.envs.vector import SearchQAVectorEnv
from a2tgpo.errors import ConfigError, DataError

NAMESPACE = "a2tgpo"
DATA_FOLDER = "A2TGPO_DATA"
"""Environment variable: the folder in which data sets are looked up by name."""
DATASETS: dict[str, str] = {
    "HotpotQA": "hotpotqa",
    "TwoWikiMultihopQA": "2wikimultihopqa",
    "MuSiQue": "musique",
    "Bamboogle": "bamboogle",
    "NaturalQuestions": "nq",
    "TriviaQA": "triviaqa",
    "PopQA": "popqa",
}
"""Ids of the seven public sets to their names."""


def register_envs() -> None:
    """Register every id of this package with Gymnasium; harmless when called again (the plugin entry point and the
    import both do).
    """
    _register("Almanac", "almanac", {})
    _register("SearchQA", "search_qa", {})
    for name, dataset in DATASETS.items():
        _register(name, "search_qa", {"dataset": dataset})


def _register(name: str, maker: str, kwargs: dict[str, Any]) -> None:
    env_id = f"{NAMESPACE}/{name}-v0"
    if env_id not in gym.registry:
        gym.register(
            env_id,
            entry_point=f"{__name__}:make_{maker}",
            vector_entry_point=f"{__name__}:make_{maker}_vector",
            kwargs=kwargs,
        )


def search_qa(
    dataset: str | Path | None,
    corpus: str | Path | None,
    split: str,
    retriever: str | Retriever,
    questions: Sequence[Question] | None,
    on_bad_row: OnBadRow,
    cache: str | Path | None,
    aliases: str | Path | None,
) -> tuple[Sequence[Question], Retrievers]:
    """Questions of a data set, and a retriever over the given corpus or over the paragraphs that came with the
    questions.

    Raises:
        DataError: if a file cannot be used.
        ConfigError: if neither a corpus nor a retriever can be made.
    """
    items: list[Item] = []
    if dataset is not None:
        items = load_items(dataset, split, on_bad_row)
        items = items if aliases is None else with_aliases(items, read_aliases(aliases))
    elif questions is None:
        raise ConfigError(
            "dataset: got none, expected a file, a folder with one file per split, or the name of a data set; or pass"
            " questions="
        )
    asked = list(questions) if questions is not None else [item.question for item in items]
    if not isinstance(retriever, str):
        return asked, retriever
    engine = _engine(retriever, corpus, items)
    return asked, engine if cache is None else Cache(engine, cache, _identity(retriever, engine))


def _engine(name: str, corpus: str | Path | None, items: Sequence[Item]) -> Retriever:
    if corpus is not None:
        return (
            Bm25Retriever.open(corpus)
            if name == "bm25" and is_index(corpus)
            else make_retriever(name, read_corpus(corpus))
        )
    passages = list({passage.id: passage for item in items for passage in item.passages}.values())
    if not passages and not name.startswith(("http://", "https://")):
        raise ConfigError(
            "corpus: got none, and the questions come without paragraphs; pass corpus= (a passages file or an index"
            " folder) or a retriever"
        )
    return make_retriever(name, passages)


def _identity(name: str, engine: Retriever) -> str:
    """What must be equal for cached results to be comparable."""
    return f"{name} {corpus_fingerprint(engine.passages)}" if isinstance(engine, LocalRetriever) else name


def load_items(dataset: str | Path, split: str, on_bad_row: OnBadRow) -> list[Item]:
    """The questions of one split. A folder has one file per split; a single file, or a folder's only `questions.jsonl`,
    is split by hash, "all" takes it whole.

    Raises:
        DataError: if the data set cannot be found or read, or the split is empty.
    """
    path = locate(dataset)
    if path.is_dir() and (path / "questions.jsonl").is_file():
        path = path / "questions.jsonl"
    if path.is_dir():
        return list(read(file_of_split(path, split), on_bad_row).items)
    items = split_items(read(path, on_bad_row).items, split)
    if not items:
        raise DataError(f"{path}: got no question for split {split!r}; the file is small, use split='all'")
    return items


def locate(dataset: str | Path) -> Path:
    """The file or folder of a data set given by path, or by name below the folder in `$A2TGPO_DATA`.

    Raises:
        DataError: if it is not there.
    """
    path = Path(dataset)
    if path.exists():
        return path
    folder = os.environ.get(DATA_FOLDER)
    if folder and (Path(folder) / path).exists():
        return Path(folder) / path
    raise DataError(
        f"dataset: got {str(dataset)!r}, which is no file or folder{f' below {folder}' if folder else ''}; download the"
        f" set, and pass its path or set {DATA_FOLDER} to the folder that holds {str(dataset)!r}; nothing is downloaded"
        " by itself"
    )


def make_search_qa(
    dataset: str | Path | None = None,
    corpus: str | Path | None = None,
    split: str = "all",
    retriever: str | Retriever = "bm25",
    questions: Sequence[Question] | None = None,
    on_bad_row: OnBadRow = "error",
    cache: str | Path | None = None,
    aliases: str | Path | None = None,
    **kwargs: Any,
) -> SearchQAEnv:
    """`gymnasium.make("a2tgpo/SearchQA-v0", dataset=…)`.

    Args:
        dataset: a question file, a folder with one file per split, or a name below `$A2TGPO_DATA`.
        corpus: a passages file, a folder with one, or a saved BM25 index; without it, the paragraphs that came with the
            questions.
        split: "all", or train, validation, test.
        retriever: "bm25", "rank_bm25", the address of a retriever server, or a `Retriever`.
        questions: asked instead of the data set's.
        on_bad_row: "error" or "skip".
        cache: file that keeps search results between runs and processes.
        aliases: 2Wiki's `id_aliases.json`, whose names are added to the golds.
        kwargs: for `SearchQAEnv`.
    """
    return SearchQAEnv(*search_qa(dataset, corpus, split, retriever, questions, on_bad_row, cache, aliases), **kwargs)


def make_search_qa_vector(
    num_envs: int = 1,
    dataset: str | Path | None = None,
    corpus: str | Path | None = None,
    split: str = "all",
    retriever: str | Retriever = "bm25",
    questions: Sequence[Question] | None = None,
    on_bad_row: OnBadRow = "error",
    cache: str | Path | None = None,
    aliases: str | Path | None = None,
    **kwargs: Any,
) -> SearchQAVectorEnv:
    """`gymnasium.make_vec("a2tgpo/SearchQA-v0", dataset=…)`; arguments as for `make_search_qa`."""
    return SearchQAVectorEnv(
        *search_qa(dataset, corpus, split, retriever, questions, on_bad_row, cache, aliases), num_envs, **kwargs
    )


def almanac(
    split: str = "train",
    fictional: bool = False,
    seed: int = 0,
    worlds: int = 1,
    hops: Sequence[int] = (1, 2, 3, 4),
    retriever: str = "bm25",
) -> tuple[Sequence[Question], Retrievers]:
    """Questions of the embedded world (see `a2tgpo.envs.almanac.load`) and one retriever per corpus."""
    from a2tgpo.envs.almanac import load

    questions, corpora = load(split=split, fictional=fictional, seed=seed, worlds=worlds, hops=hops)
    return questions, {key: make_retriever(retriever, passages) for key, passages in corpora.items()}


def make_retriever(name: str, passages: Sequence[Passage]) -> Retriever:
    """The in-process backend of that name over a corpus, or the client of a server address, with retries and a circuit
    breaker.

    Raises:
        ConfigError: for an unknown name or a corpus that cannot be searched.
    """
    if name.startswith(("http://", "https://")):
        return resilient(HttpRetriever(name))
    backends: dict[str, Callable[[Sequence[Passage]], Retriever]] = {
        "bm25": Bm25Retriever,
        "rank_bm25": RankBm25Retriever,
    }
    if name not in backends:
        raise ConfigError(
            f"retriever: got {name!r}, expected one of {', '.join(backends)} or the http(s) address of a server"
        )
    return backends[name](passages)


def make_almanac(**kwargs: Any) -> SearchQAEnv:
    """`gymnasium.make("a2tgpo/Almanac-v0")`: the embedded world. `split, fictional, seed, worlds, hops, retriever`
    shape it, the rest goes to `SearchQAEnv`.
    """
    return SearchQAEnv(*almanac(**_taken(kwargs)), **kwargs)


def make_almanac_vector(num_envs: int = 1, **kwargs: Any) -> SearchQAVectorEnv:
    """`gymnasium.make_vec("a2tgpo/Almanac-v0")`; arguments as for `make_almanac`."""
    return SearchQAVectorEnv(*almanac(**_taken(kwargs)), num_envs, **kwargs)


def _taken(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take what describes the embedded world out of the arguments of an environment."""
    return {
        name: kwargs.pop(name)
        for name in ("split", "fictional", "seed", "worlds", "hops", "retriever")
        if name in kwargs
    }
