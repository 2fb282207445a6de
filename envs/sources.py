"""From settings to questions and the search engines over their corpora."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from a2tgpo.envs.almanac import load
from a2tgpo.envs.data.corpus import corpus_fingerprint
from a2tgpo.envs.data.datasets import mixed, read, read_aliases, with_aliases
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.data.splits import files_of_split, split_items
from a2tgpo.envs.records import Question
from a2tgpo.envs.retrieval.base import LocalRetriever, Retriever, Retrievers
from a2tgpo.envs.retrieval.cache import Cache
from a2tgpo.envs.retrieval.maker import is_address, make_retriever, open_retriever
from a2tgpo.envs.settings import AlmanacSettings, DataSettings
from a2tgpo.errors import ConfigError, DataError

DATA_FOLDER = "A2TGPO_DATA"
"""Environment variable: the folder in which data sets are looked up by name."""


def almanac(settings: AlmanacSettings) -> tuple[Sequence[Question], Retrievers]:
    """Questions of the embedded world and one retriever per corpus."""
    questions, corpora = load(settings.split, settings.fictional, settings.seed, settings.worlds, settings.hops)
    return questions, {key: make_retriever(settings.retriever, passages) for key, passages in corpora.items()}


def search_qa(settings: DataSettings) -> tuple[Sequence[Question], Retrievers]:
    """Questions of a data set, and a retriever over the given corpus or over the paragraphs that came with the
    questions.

    Raises:
        DataError: if a file cannot be used.
        ConfigError: if neither a corpus nor a retriever can be made.
    """
    items: list[Item] = []
    if settings.dataset is not None:
        items = load_items(settings)
        items = items if settings.aliases is None else with_aliases(items, read_aliases(settings.aliases))
    elif settings.questions is None:
        raise ConfigError(
            "dataset: got none, expected a file, a folder with one file per split, or the name of a data set; or pass"
            " questions="
        )
    asked = [item.question for item in items] if settings.questions is None else list(settings.questions)
    if not isinstance(settings.retriever, str):
        return asked, settings.retriever
    engine = _engine(settings.retriever, settings.corpus, items)
    if settings.cache is None:
        return asked, engine
    return asked, Cache(engine, settings.cache, _identity(settings.retriever, engine))


def _engine(name: str, corpus: str | Path | None, items: Sequence[Item]) -> Retriever:
    if corpus is not None and not is_address(name):
        return open_retriever(name, corpus)
    passages = list({passage.id: passage for item in items for passage in item.passages}.values())
    if not passages and not is_address(name):
        raise ConfigError(
            "corpus: got none, and the questions come without paragraphs; pass corpus= (a passages file or an index"
            " folder) or a retriever"
        )
    return make_retriever(name, passages)


def _identity(name: str, engine: Retriever) -> str:
    """What must be equal for cached results to be comparable."""
    return f"{name} {corpus_fingerprint(engine.passages)}" if isinstance(engine, LocalRetriever) else name


def load_items(settings: DataSettings) -> list[Item]:
    """The questions of one split of the data set, or of several data sets by their weights. A folder has one file per
    split; a single file, or a folder's only `questions.jsonl`, is split by hash, "all" takes it whole.

    Raises:
        DataError: if a data set cannot be found or read, or its split is empty.
    """
    weights = settings.weights()
    parts = {name: _load(locate(name), settings) for name in weights}
    if len(parts) == 1:
        return next(iter(parts.values()))
    if isinstance(settings.dataset, Mapping):
        return mixed(parts, weights)
    return mixed(parts, {name: float(len(items)) for name, items in parts.items()})  # all of each


def _load(path: Path, settings: DataSettings) -> list[Item]:
    if path.is_dir() and (path / "questions.jsonl").is_file():
        path = path / "questions.jsonl"
    if path.is_dir():
        files = files_of_split(path, settings.split)
        return [item for file in files for item in read(file, settings.on_bad_row, settings.field_names()).items]
    items = split_items(read(path, settings.on_bad_row, settings.field_names()).items, settings.split)
    if not items:
        raise DataError(f"{path}: got no question for split {settings.split!r}; the file is small, use split='all'")
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
        f"dataset: got {str(dataset)!r}, which is not a file or folder{f' below {folder}' if folder else ''}; download"
        f" the set, and pass its path or set {DATA_FOLDER} to the folder that holds {str(dataset)!r}; nothing is"
        " downloaded automatically"
    )
