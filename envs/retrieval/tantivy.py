"""BM25 for millions of passages: Tantivy, a search engine on disk (extra `tantivy`)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from a2tgpo.envs.records import Passage
from a2tgpo.envs.retrieval.text import passage_terms, query_terms
from a2tgpo.errors import DataError, MissingExtraError

_WRITER_BYTES = 256 << 20


class TantivyRetriever:
    """Searches an index folder that `build_tantivy` wrote; memory stays small, whatever the size of the corpus.

    Terms are ours (accents folded, stemmed), and a query is put together from terms, never parsed: Tantivy's query
    syntax has no power here.

    Raises:
        MissingExtraError: without the extra.
        DataError: if there is no index.
    """

    def __init__(self, folder: str | Path) -> None:
        tantivy = _tantivy()
        self.folder = Path(folder)
        if not self.folder.is_dir() or not tantivy.Index.exists(str(self.folder)):
            raise DataError(f"{folder}: holds no Tantivy index; build one with build_tantivy(passages, folder)")
        self._tantivy = tantivy
        self._index = tantivy.Index.open(str(self.folder))
        self._index.register_tokenizer("terms", _tokenizer(tantivy))
        self._searcher = self._index.searcher()

    def __reduce__(self) -> tuple[type["TantivyRetriever"], tuple[Path]]:
        return TantivyRetriever, (self.folder,)

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`; never fails."""
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> list[Passage]:
        schema, query_type, should = self._index.schema, self._tantivy.Query, self._tantivy.Occur.Should
        clauses = [(should, query_type.term_query(schema, "terms", term)) for term in query_terms(query)]
        if not clauses:
            return []
        found = self._searcher.search(query_type.boolean_query(clauses), k)
        hits = [(score, self._searcher.doc(address)) for score, address in found.hits]
        return [Passage(doc["id"][0], doc["title"][0], doc["text"][0], float(score)) for score, doc in hits]


def build_tantivy(passages: Iterable[Passage], folder: str | Path) -> TantivyRetriever:
    """Index passages one by one; nothing but the writer's buffer is held in memory.

    Raises:
        MissingExtraError: without the extra.
        DataError: if the folder holds an index already, or there is no passage.
    """
    tantivy = _tantivy()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if tantivy.Index.exists(str(folder)):
        raise DataError(f"{folder}: holds an index already; delete the folder or choose another one")
    builder = tantivy.SchemaBuilder()
    for name in ("id", "title", "text"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("terms", stored=False, tokenizer_name="terms", index_option="freq")
    index = tantivy.Index(builder.build(), path=str(folder))
    index.register_tokenizer("terms", _tokenizer(tantivy))
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
    empty = True
    for passage in passages:
        empty = False
        document = tantivy.Document(
            id=passage.id,
            title=passage.title,
            text=passage.text,
            terms=" ".join(passage_terms(passage.title, passage.text)),
        )
        writer.add_document(document)
    if empty:
        raise DataError(f"{folder}: got an empty corpus, expected at least one passage")
    writer.commit()
    writer.wait_merging_threads()
    return TantivyRetriever(folder)


def _tokenizer(tantivy: Any) -> Any:
    """Terms are made here, so the index only splits at spaces."""
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise MissingExtraError(
            "retriever 'tantivy': the package is missing; install it with: pip install 'a2tgpo[tantivy]'"
        ) from error
    return tantivy
