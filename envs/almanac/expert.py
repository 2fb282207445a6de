"""A scripted expert that answers chain questions in the protocol's text, and errs on purpose.

Warm-start demonstrations come from it. Its mistakes are the ones that credit per turn can see: a search with the wrong
relation, a search about the wrong entity, the same search again, and an answer given before the chain is walked. Each
can happen at every hop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from a2tgpo.checks import check_number
from a2tgpo.envs.almanac.passages import Fact, read_passages
from a2tgpo.envs.records import Passage, Question
from a2tgpo.errors import ConfigError

MISTAKES = ("wrong_relation", "wrong_entity", "redundant", "give_up")
HABITS = {"neighbour": "wrong_entity", "currency": "wrong_relation", "capital": "give_up", "region": "redundant"}
"""One relation for each mistake: the habits of the embedded study's demonstrations."""


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """Probability of each mistake at every turn; what is left over is done right.

    `habits` are systematic: at a hop over one of their relations the named mistake is made with probability `habit`
    before any of the others is drawn. With `habit` above one half the usual thing to do there is wrong, so that
    imitating the expert's favourite action (greedy decoding) fails as well.
    """

    wrong_relation: float = 0.0
    """Searches another relation of the entity at hand."""
    wrong_entity: float = 0.0
    """Searches the right relation of another entity it has read about."""
    redundant: float = 0.0
    """Repeats its last search."""
    give_up: float = 0.0
    """Answers with the entity at hand although hops are left."""
    unaware: float = 0.5
    """Share of wrong searches whose result is then taken for the right one; otherwise the hop is tried again."""

    habits: Mapping[str, str] = field(default_factory=dict)
    """Relation → the mistake usually made at a hop over it."""
    habit: float = 0.0
    """Probability of that mistake at such a hop."""

    def __post_init__(self) -> None:
        for name in (*MISTAKES, "unaware", "habit"):
            check_number(f"ErrorModel.{name}", getattr(self, name), 0.0, 1.0, "; it is a probability")
        for relation, mistake in self.habits.items():
            if mistake not in MISTAKES:
                raise ConfigError(
                    f"ErrorModel.habits[{relation!r}]: got {mistake!r}, expected one of {', '.join(MISTAKES)}"
                )
        if self.rate > 1:
            raise ConfigError(
                f"ErrorModel: the four mistakes add up to {self.rate:g}, expected at most 1; make them rarer"
            )

    @property
    def rate(self) -> float:
        """Probability of any mistake in a turn."""
        return self.wrong_relation + self.wrong_entity + self.redundant + self.give_up

    @classmethod
    def uniform(
        cls, rate: float, unaware: float = 0.5, habits: Mapping[str, str] | None = None, habit: float = 0.0
    ) -> "ErrorModel":
        """All four mistakes equally often, `rate` altogether, besides the habits."""
        share = rate / len(MISTAKES)
        return cls(share, share, share, share, unaware, habits or {}, habit)

    def draw(self, relation: str, rng: Random) -> tuple[str, bool]:
        """The mistake to make at a hop over `relation` ("" for none), and whether it is a habit."""
        if relation in self.habits and rng.random() < self.habit:
            return self.habits[relation], True
        point = rng.random()
        for name in MISTAKES:
            point -= getattr(self, name)
            if point < 0:
                return name, False
        return "", False


class Expert:
    """Plays one question turn by turn: `act(passages of the last search)` gives the text of the next action."""

    def __init__(
        self, question: Question, relations: Sequence[str], errors: ErrorModel, rng: Random, max_searches: int
    ) -> None:
        self.chain: tuple[str, ...] = question.metadata["relations"]
        self.entity: str = question.metadata["entities"][0]
        self.relations = relations
        self.errors = errors
        self.rng = rng
        self.searches_left = max_searches
        self.hop = 0
        self.query: tuple[str, str] | None = None
        self.trusted = True
        self.read: list[Fact] = []

    def act(self, passages: Sequence[Passage] = ()) -> str:
        """The next action, given what the last search found (nothing before the first).

        `<search> entity relation </search>` or `<answer> entity </answer>`.
        """
        self._digest(passages)
        if self.hop == len(self.chain) or self.searches_left == 0:
            return self._answer()
        relation = self.chain[self.hop]
        right = (self.entity, relation)
        mistake, habitual = self.errors.draw(relation, self.rng)
        match mistake:
            case "give_up":
                return self._answer()
            case "redundant" if self.query is not None:
                return self._search(self.query, trusted=False)
            case "wrong_relation":
                return self._search(
                    (self.entity, self._another_relation(relation, habitual)), trusted=self._is_unaware()
                )
            case "wrong_entity" if self._others():
                return self._search((self._another_entity(habitual), relation), trusted=self._is_unaware())
            case _:
                return self._search(right, trusted=True)

    def _digest(self, passages: Sequence[Passage]) -> None:
        """Move along the chain if the last search was trusted and its fact was found."""
        facts = read_passages(passages)
        self.read.extend(facts)
        found = next((fact.object for fact in facts if self.query == (fact.subject, fact.relation)), None)
        if self.trusted and found is not None:
            self.entity = found
            self.hop += 1

    def _is_unaware(self) -> bool:
        return self.rng.random() < self.errors.unaware

    def _others(self) -> list[str]:
        names = {name: None for fact in self.read for name in (fact.subject, fact.object)}
        return [name for name in names if name != self.entity]

    def _another_relation(self, relation: str, habitual: bool) -> str:
        """A habit always confuses a relation with the same other one."""
        others = [name for name in self.relations if name != relation]
        return others[self.relations.index(relation) % len(others)] if habitual else self.rng.choice(others)

    def _another_entity(self, habitual: bool) -> str:
        """A habit always picks what was read last."""
        return self._others()[-1] if habitual else self.rng.choice(self._others())

    def _search(self, query: tuple[str, str], trusted: bool) -> str:
        self.query, self.trusted = query, trusted
        self.searches_left -= 1
        return f"<search> {query[0]} {query[1]} </search>"

    def _answer(self) -> str:
        return f"<answer> {self.entity} </answer>"
