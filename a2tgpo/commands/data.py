"""`a2tgpo data …`: look into question files, build corpora and indexes from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.envs.data.corpus import build_corpus, read_corpus
from a2tgpo.envs.data.inspection import inspect_file
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class InspectOptions:
    """Count what is in question files: hops, answer types, duplicates, empty golds, answers that no paragraph contains,
    bad rows.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Question files: JSONL, JSON, Parquet, CSV or TSV, also gzipped."""


@dataclass(frozen=True)
class CorpusOptions:
    """Build the closed corpus of question files from the paragraphs that came with them."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder to write; gets `passages.jsonl` and `manifest.json`."""


@dataclass(frozen=True)
class IndexOptions:
    """Build a BM25 index over a corpus, to be opened memory-mapped by any number of processes."""

    corpus: tyro.conf.Positional[Path]
    """Passages file, or a folder with `passages.jsonl`."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder to write."""


def data(words: list[str], console: Console) -> int:
    """Run `a2tgpo data inspect|corpus|index`."""
    if words[:1] in (["-h"], ["--help"]):
        console.print(
            "a2tgpo data inspect FILE… | corpus FILE… -o FOLDER | index CORPUS -o FOLDER   (--help after one of them"
            " tells its settings)"
        )
        return 0
    if not words or words[0] not in ("inspect", "corpus", "index"):
        raise ConfigError(
            f"data: got {words[0] if words else 'nothing'!r}, expected inspect FILE…, corpus FILE… -o FOLDER, or index"
            " CORPUS -o FOLDER"
        )
    if words[0] == "inspect":
        files = parse(InspectOptions, words[1:], "data inspect").files
        _expect_files(files, "data inspect")
        for path in files:
            for line in inspect_file(path).lines():
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    elif words[0] == "corpus":
        options = parse(CorpusOptions, words[1:], "data corpus")
        _expect_files(options.files, "data corpus")
        _expect_folder(options.output)
        built = build_corpus(options.files, options.output)
        console.print(
            f"{built.folder}: {built.passages} passages from {built.questions} questions, {built.duplicates} duplicates"
            f" left out, {len(built.bad_rows)} bad rows, fingerprint {built.fingerprint[:12]}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        for bad in built.bad_rows[:5]:
            console.print(f"bad row {bad}", highlight=False, markup=False, soft_wrap=True)
    else:
        to_index = parse(IndexOptions, words[1:], "data index")
        _expect_folder(to_index.output)
        retriever = Bm25Retriever(read_corpus(to_index.corpus))
        retriever.save(to_index.output)
        console.print(
            f"{to_index.output}: index over {len(retriever.passages)} passages",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return 0


def _expect_files(files: tuple[Path, ...], command: str) -> None:
    if not files:
        raise ConfigError(f"{command}: got no file, expected at least one question file: a2tgpo {command} FILE…")


def _expect_folder(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise ConfigError(f"-o: got {str(output)!r}, which is a file; expected a folder, to be made or filled")
