"""ReAct (arXiv 2210.03629): thought and action in turns, shown by worked examples in the environment's own protocol."""

from dataclasses import dataclass

from a2tgpo.baselines.script import Opening, Script, generate, write
from a2tgpo.envs.protocols.base import Protocol
from a2tgpo.envs.protocols.writing import written_answer, written_search
from a2tgpo.envs.records import Passage


@dataclass(frozen=True, slots=True)
class Worked:
    """One worked example: searches with their thoughts and results, then the answer."""

    question: str
    searches: tuple[tuple[str, str, Passage], ...]
    """(thought, query, passage found) of every search."""
    thought: str
    answer: str


EXAMPLES = (
    Worked(
        "In which country was the architect of the Sydney Opera House born?",
        (
            (
                "First I need the architect.",
                "Sydney Opera House architect",
                Passage(
                    "1",
                    "Sydney Opera House",
                    "The Sydney Opera House in Australia was designed by Jørn Utzon and opened in 1973.",
                ),
            ),
            (
                "The architect is Jørn Utzon. Now his place of birth.",
                "Jørn Utzon born",
                Passage("2", "Jørn Utzon", "Jørn Utzon was an architect. He was born in Copenhagen, Denmark, in 1918."),
            ),
        ),
        "Copenhagen lies in Denmark.",
        "Denmark",
    ),
    Worked(
        "Who wrote the novel Middlemarch?",
        (
            (
                "I look up the novel.",
                "Middlemarch author",
                Passage("3", "Middlemarch", "Middlemarch is a novel by the English writer George Eliot."),
            ),
        ),
        "The passage names the author.",
        "George Eliot",
    ),
)


def react(opening: Opening) -> Script:
    """Every turn is whatever the model writes after the examples and the episode so far."""
    transcript = "".join(worked(example, opening.protocol) for example in EXAMPLES) + opening.prompt
    while True:
        text = yield from generate(transcript, opening.protocol.stop_strings, keep_stop=True)
        seen = yield from write(text)
        transcript += text + seen.observation


def worked(example: Worked, protocol: Protocol) -> str:
    """A worked example as the protocol writes it."""
    turns = [
        written_search(protocol, query, thought) + protocol.observation([passage])
        for thought, query, passage in example.searches
    ]
    return (
        protocol.prompt(example.question)
        + "".join(turns)
        + written_answer(protocol, example.answer, example.thought)
        + "\n\n"
    )
