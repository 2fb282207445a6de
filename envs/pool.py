"""What an environment is asked and where it searches: checked once, shared by the single and the vector environment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from a2tgpo.checks import check_whole
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.retrieval.base import Found, LocalRetriever, Retriever, Retrievers, check_passage, check_retriever
from a2tgpo.errors import ConfigError, RetrievalError


@dataclass(frozen=True, slots=True)
class QuestionPool:
    """Questions with the retriever of each.

    Raises:
        ConfigError: if there is no question, an id repeats, a question has no usable gold answer, its corpus has no
            retriever, or a corpus is smaller than `top_k`.
    """

    questions: tuple[Question, ...]
    retrievers: Retrievers
    top_k: int
    _index: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, questions: Iterable[Question], retrievers: Retrievers, top_k: int) -> "QuestionPool":
        """A pool of any collection of questions."""
        given: object = questions
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"questions: got {given!r}, expected Question(id, text, answers) in a list")
        return cls(tuple(questions), retrievers, top_k)

    def __post_init__(self) -> None:
        check_whole("top_k", self.top_k, 1)
        self._check_retrievers()
        if not self.questions:
            raise ConfigError("questions: got none, expected at least one; check the question file and the split")
        for row, question in enumerate(self.questions):
            if not isinstance(question, Question):
                raise ConfigError(f"questions: got {question!r}, expected Question(id, text, answers)")
            if question.id in self._index:
                raise ConfigError(
                    f"questions: got id {question.id!r} twice, expected unique ids; prefix them with the data set's"
                    " name"
                )
            if not any(answer.strip() for answer in question.answers):
                raise ConfigError(
                    f"questions: {question.id!r} has answers {question.answers!r}, expected one that is not blank; skip"
                    " such rows when reading"
                )
            self._index[question.id] = row
        for key in {question.corpus for question in self.questions}:
            self._check_corpus(key)

    def _check_retrievers(self) -> None:
        if not isinstance(self.retrievers, Mapping):
            check_retriever(self.retrievers)
            return
        if not self.retrievers:
            raise ConfigError("retriever: got no retriever, expected one or more by the name of their corpus")
        for retriever in self.retrievers.values():
            check_retriever(retriever)

    def _check_corpus(self, key: str) -> None:
        if isinstance(self.retrievers, Mapping) and key not in self.retrievers:
            raise ConfigError(
                f"retriever: got corpora {sorted(self.retrievers)}, expected one for corpus {key!r}, which a question"
                " names"
            )
        retriever = self.retrievers[key] if isinstance(self.retrievers, Mapping) else self.retrievers
        if isinstance(retriever, LocalRetriever) and self.top_k > len(retriever.passages):
            raise ConfigError(
                f"top_k: got {self.top_k}, expected at most the {len(retriever.passages)} passages of corpus {key!r};"
                " lower top_k or add passages"
            )

    def find(self, question_id: str) -> Question:
        """The question of that id.

        Raises:
            ConfigError: for an unknown id.
        """
        if question_id not in self._index:
            raise ConfigError(
                f"question_id: got {question_id!r}, expected one of {len(self.questions)} like"
                f" {self.questions[0].id!r}; another split?"
            )
        return self.questions[self._index[question_id]]

    def corpora(self) -> list[Sequence[Passage]]:
        """The passages of every retriever that holds its corpus."""
        retrievers = self.retrievers.values() if isinstance(self.retrievers, Mapping) else [self.retrievers]
        return [retriever.passages for retriever in retrievers if isinstance(retriever, LocalRetriever)]

    def search(self, requests: Sequence[tuple[str, str]]) -> list[Found]:
        """Answer (corpus, query) pairs with one call per retriever, equal queries asked once; a failed call gives its
        error for each of its queries.
        """
        wanted: dict[str, dict[str, None]] = {}
        for corpus, query in requests:
            wanted.setdefault(corpus if isinstance(self.retrievers, Mapping) else "", {})[query] = None
        found: dict[tuple[str, str], Found] = {}
        for corpus, queries in wanted.items():
            retriever = self.retrievers[corpus] if isinstance(self.retrievers, Mapping) else self.retrievers
            results = _search(retriever, list(queries), self.top_k)
            found.update(((corpus, query), hits) for query, hits in zip(queries, results, strict=True))
        return [found[corpus if isinstance(self.retrievers, Mapping) else "", query] for corpus, query in requests]


def _search(retriever: Retriever, queries: list[str], k: int) -> Sequence[Found]:
    try:
        return _checked(retriever.search(queries, k), len(queries), type(retriever).__name__)
    except RetrievalError as error:
        return [error] * len(queries)
    except OSError as error:  # a retriever of the user's own that lets connection errors and time-outs through
        return [RetrievalError(f"{type(error).__name__}: {error}")] * len(queries)


def _checked(found: Sequence[Found], expected: int, name: str) -> Sequence[Found]:
    """What a retriever returned, perhaps one of the user's own.

    Raises:
        ConfigError: if it is not one list of passages per query.
    """
    if not isinstance(found, Sequence) or len(found) != expected:
        got = f"{len(found)} results" if isinstance(found, Sequence) else repr(found)
        raise ConfigError(f"retriever: got {got} from {name}.search for {expected} queries, expected one list for each")
    for hits in found:
        if not isinstance(hits, list | tuple | RetrievalError):
            raise ConfigError(f"retriever: got {hits!r} from {name}.search for a query, expected a list of Passage")
        for hit in hits if isinstance(hits, list | tuple) else ():
            check_passage(f"retriever, {name}.search", hit)
    return found
