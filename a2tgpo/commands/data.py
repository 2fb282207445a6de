"""`a2tgpo data inspect|corpus|index`: look into question files, build corpora and indexes from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import choose
from a2tgpo.config.parsing import Range
from a2tgpo.display.lines import say
from a2tgpo.envs.data.corpus import build_corpus, read_corpus
from a2tgpo.envs.data.fields import FieldNames
from a2tgpo.envs.data.inspection import inspect_files
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.files import output_folder

Files = Annotated[
    tuple[Path, ...], Range(1, why="; name the question files"), tyro.conf.Positional, tyro.conf.arg(metavar="FILE …")
]
Folder = Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]


@dataclass(frozen=True, kw_only=True)
class FieldOptions:
    """Fields of a row whose names are not known, or that are to be read instead of those found. `extra_info.question`
    leads into an object.
    """

    question_field: str = ""
    """Field with the question."""
    answer_field: str = ""
    """Field with the gold answer or a list of them."""
    context_field: str = ""
    """Field with the paragraphs that came with the question."""

    def names(self) -> FieldNames:
        """The same for the reader."""
        return FieldNames(self.question_field, self.answer_field, self.context_field)


@dataclass(frozen=True)
class Inspect(FieldOptions):
    """Show what is in question files: an example with the fields it was read from, splits, questions that two files
    share, hops, answer types, duplicates, empty gold answers, answers that no paragraph contains, bad rows.
    """

    files: Files
    """Question files or folders of them: JSONL, JSON, Parquet, CSV or TSV, also gzipped."""

    def run(self, console: Console) -> None:
        say(console, *inspect_files(self.files, self.names()))


@dataclass(frozen=True)
class Corpus(FieldOptions):
    """Build the closed corpus of question files from the paragraphs that came with them."""

    files: Files
    """Question files with paragraphs."""
    output: Folder
    """Folder to write; gets `passages.jsonl` and `manifest.json`."""

    def run(self, console: Console) -> None:
        built = build_corpus(self.files, output_folder("-o", self.output), self.names())
        say(
            console,
            f"{built.folder}: {built.passages} passages from {built.questions} questions, {built.duplicates} duplicates"
            f" left out, {len(built.bad_rows)} bad rows, fingerprint {built.fingerprint[:12]}",
            *(f"bad row {bad}" for bad in built.bad_rows[:5]),
        )


@dataclass(frozen=True)
class Index:
    """Build a BM25 index over a corpus, to be opened memory-mapped by any number of processes."""

    corpus: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")]
    """Passages file, or a folder with `passages.jsonl`."""
    output: Folder
    """Folder to write."""

    def run(self, console: Console) -> None:
        output_folder("-o", self.output)
        retriever = Bm25Retriever(read_corpus(self.corpus))
        retriever.save(self.output)
        say(console, f"{self.output}: index over {len(retriever.passages)} passages")


def data(words: list[str], console: Console) -> int:
    """Run `a2tgpo data`."""
    kinds: dict[str, type[Inspect | Corpus | Index]] = {"inspect": Inspect, "corpus": Corpus, "index": Index}
    choose(kinds, words, "data").run(console)
    return 0
