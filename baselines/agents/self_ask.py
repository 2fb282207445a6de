"""Self-Ask with a search engine (arXiv 2210.03350): the model asks itself follow-up questions, each is searched and
answered, then the answer follows.
"""

from a2tgpo.baselines.agents.direct import OPEN_BOOK
from a2tgpo.baselines.script import Opening, Script, answer, generate, search

FOLLOW_UP, INTERMEDIATE, FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"

EXAMPLES = """Question: In which country was the architect of the Sydney Opera House born?
Are follow up questions needed here: Yes.
Follow up: Who was the architect of the Sydney Opera House?
Intermediate answer: Jørn Utzon
Follow up: In which country was Jørn Utzon born?
Intermediate answer: Denmark
So the final answer is: Denmark

Question: Who wrote the novel Middlemarch?
Are follow up questions needed here: Yes.
Follow up: Who is the author of Middlemarch?
Intermediate answer: George Eliot
So the final answer is: George Eliot

"""


def self_ask(opening: Opening) -> Script:
    """Follow-up questions are the queries; the model reads each intermediate answer off the passages. What is no
    follow-up question ends the asking.
    """
    text = f"{EXAMPLES}Question: {opening.question.text}\nAre follow up questions needed here:"
    for _ in range(opening.max_searches):
        written = yield from generate(text, stop=(INTERMEDIATE, FINAL))
        _, asked, question = written.partition(FOLLOW_UP)
        question = question.strip().split("\n")[0]
        if not asked or not question:
            break
        seen = yield from search(opening, question)
        reply = yield from generate(
            OPEN_BOOK.format(passages=seen.observation.strip(), question=question), stop=("\n",)
        )
        text += f"{written.rstrip()}\n{INTERMEDIATE} {reply.strip()}\n"
    final = yield from generate(f"{text.rstrip()}\n{FINAL}", stop=("\n",))
    yield from answer(opening, final)
