"""Language models that do not decide when to search: closed book, and one retrieval up front."""

from a2tgpo.baselines.script import Opening, Script, answer, generate, search

CLOSED_BOOK = """Answer each question as briefly as possible, with a name, a number or a few words.

Question: Who wrote the novel Middlemarch?
Answer: George Eliot

Question: In which country was the architect of the Sydney Opera House born?
Answer: Denmark

Question: {question}
Answer:"""

OPEN_BOOK = """Answer the question as briefly as possible, with a name, a number or a few words taken from the passages.

{passages}

Question: {question}
Answer:"""


def direct(opening: Opening) -> Script:
    """Closed book: what the model knows by itself."""
    text = yield from generate(CLOSED_BOOK.format(question=opening.question.text), stop=("\n",))
    yield from answer(opening, text)


def rag(opening: Opening) -> Script:
    """One retrieval with the question, then the answer."""
    seen = yield from search(opening, opening.question.text)
    text = yield from generate(
        OPEN_BOOK.format(passages=seen.observation.strip(), question=opening.question.text), stop=("\n",)
    )
    yield from answer(opening, text)
