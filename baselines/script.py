"""What a reference agent is: a generator that asks for what it needs (text from a language model, a turn in the
environment) and is given it.

    def rag(opening: Opening) -> Script:
        seen = yield from search(opening, opening.question.text)
        text = yield from generate(f"{seen.observation}\\nAnswer:", stop=("\\n",))
        yield from answer(opening, text)

So an agent reads like one episode, while the player runs many side by side with one engine call and one environment
step for all of them.
"""

from collections.abc import Generator
from dataclasses import dataclass
from random import Random

from a2tgpo.envs.protocols.base import Protocol
from a2tgpo.envs.protocols.writing import written_answer, written_search
from a2tgpo.envs.records import Passage, Question


@dataclass(frozen=True, slots=True)
class Opening:
    """What an agent knows when an episode begins."""

    question: Question
    """Agents read `question.text`; only the scripted expert looks at anything else."""
    prompt: str
    """The environment's first observation."""
    protocol: Protocol
    max_searches: int
    """Searches after which only an answer counts."""
    rng: Random
    """Of this episode alone."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the environment showed after a turn that did not end the episode."""

    observation: str
    passages: tuple[Passage, ...]
    """The retrieved passages, best first."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Asks the language model to continue a text."""

    prompt: str
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Sends a turn's text to the environment."""

    text: str


Request = Generate | Write
Reply = str | Seen
Script = Generator[Request, Reply, None]


def generate(prompt: str, stop: tuple[str, ...], *, keep_stop: bool = False) -> Generator[Request, Reply, str]:
    """The model's continuation of `prompt`, up to the first stop string; with `keep_stop` as it came, stop string
    included.
    """
    reply = yield Generate(prompt, stop)
    assert isinstance(reply, str)
    if keep_stop:
        return reply
    cuts = [place for string in stop if (place := reply.find(string)) >= 0]
    return reply[: min(cuts, default=len(reply))]


def write(text: str) -> Generator[Request, Reply, Seen]:
    """One turn of any text; the script ends here if the turn ends the episode."""
    reply = yield Write(text)
    assert isinstance(reply, Seen)
    return reply


def search(opening: Opening, query: str) -> Generator[Request, Reply, Seen]:
    """One search turn; see `write`."""
    return (yield from write(written_search(opening.protocol, query)))


def answer(opening: Opening, text: str) -> Generator[Request, Reply, None]:
    """The answer turn, with which the script ends. Nothing to say is answered with "unknown"."""
    yield from write(written_answer(opening.protocol, text))
