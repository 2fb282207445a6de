"""The rules of one search-QA episode, as a state machine without a retriever.

`SearchQAEnv` drives one, `SearchQAVectorEnv` many; both only add the retriever call between `propose` and `resolve`, so
they cannot disagree.

Limits. `max_turns` counts every turn. `max_searches` counts searches that reached the retriever; the first search asked
for beyond it is not run and ends the episode (`stop="max_searches"`). The observation after which only an answer can
still count says so. A search in the last turn is run, so that the turn has an information gain, and its result is
returned although no turn can act on it. A search that broke is not charged to the search budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from a2tgpo.checks import check_number, check_whole
from a2tgpo.envs.budget import ObservationBudget
from a2tgpo.envs.info import MISSING, Info
from a2tgpo.envs.protocols import PROTOCOLS
from a2tgpo.envs.protocols.base import Action, Protocol
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.scoring.answers import Outcome, exact_match, f1
from a2tgpo.envs.scoring.gold_value import Exchange, Scorer, Transcript
from a2tgpo.episode import ActionKind, StopReason
from a2tgpo.errors import RetrievalError


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for all episodes of an environment.

    Raises:
        ConfigError: if a number is out of range.
    """

    protocol: Protocol = field(default_factory=lambda: PROTOCOLS["tags"])
    top_k: int = 3
    """Passages per search."""
    max_turns: int = 5
    max_searches: int | None = None
    """`None` = only `max_turns` limits searching."""
    outcome: Outcome = exact_match
    format_penalty: float = 0.0
    """Subtracted from the final reward for every turn that broke the format."""
    scorer: Scorer | None = None
    """`None` = nothing is scored; `information_gain` and `answer_logprob` are NaN."""
    budget: ObservationBudget = field(default_factory=ObservationBudget)

    def __post_init__(self) -> None:
        check_whole("top_k", self.top_k, 1)
        check_whole("max_turns", self.max_turns, 1)
        if self.max_searches is not None:
            check_whole("max_searches", self.max_searches, 0, ", or None for no limit of its own")
        check_number("format_penalty", self.format_penalty, 0.0, hint="; it is subtracted")


class Step(NamedTuple):
    """What `gymnasium.Env.step` returns."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: Info


class SearchEpisode:
    """One running episode. Call `propose`, run the search if it returns a query, then `resolve`."""

    def __init__(self, question: Question, rules: Rules) -> None:
        self.question = question
        self.rules = rules
        self.prompt = rules.protocol.prompt(question.text)
        self.stop: StopReason | None = None
        self._observation = self.prompt
        self._exchanges: list[Exchange] = []
        self._pending: tuple[str, Action] | None = None
        self._searches = 0
        self._failures = 0
        self._invalid = 0
        self._format_errors = 0
        self._value = self._score()

    @property
    def transcript(self) -> Transcript:
        return Transcript(self.question.text, self.prompt, tuple(self._exchanges))

    def start(self) -> tuple[str, Info]:
        """The first observation and info."""
        return self.prompt, self._info(action="")

    def propose(self, text: str) -> str | None:
        """Read the agent's text; the query that has to be searched before `resolve`, or None.

        Raises:
            RuntimeError: if the episode is over.
        """
        if self.stop is not None:
            raise RuntimeError(
                f"step: the episode of question {self.question.id!r} is over (stop={self.stop}); call reset first"
            )
        action = self.rules.protocol.parse(text)
        self._pending = (text, action)
        wants_search = action.kind is ActionKind.SEARCH and not self._searches_spent
        return action.text if wants_search else None

    def resolve(self, hits: Sequence[Passage] | RetrievalError = ()) -> Step:
        """Finish the step.

        Args:
            hits: what the search found, best first, or how it broke. Ignored unless `propose` returned a query.
        """
        assert self._pending is not None, "resolve without propose"
        text, action = self._pending
        self._pending = None
        self._format_errors += not action.format_ok
        match action.kind:
            case ActionKind.ANSWER:
                return self._finish(text, action, "", StopReason.ANSWERED)
            case ActionKind.INVALID:
                self._invalid += 1
                return self._go_on(text, action, self.rules.protocol.corrective(), ())
            case ActionKind.SEARCH:
                if self._searches_spent:
                    return self._finish(text, action, "", StopReason.MAX_SEARCHES)
                return self._searched(text, action, hits)

    @property
    def _searches_spent(self) -> bool:
        return self.rules.max_searches is not None and self._searches >= self.rules.max_searches

    @property
    def _turns(self) -> int:
        return len(self._exchanges)

    def _searched(self, text: str, action: Action, hits: Sequence[Passage] | RetrievalError) -> Step:
        protocol = self.rules.protocol
        if isinstance(hits, RetrievalError):
            self._failures += 1
            return self._go_on(text, action, protocol.retrieval_failure(), (), error=str(hits) or type(hits).__name__)
        self._searches += 1
        shown = self.rules.budget.fit(hits[: self.rules.top_k])
        return self._go_on(text, action, protocol.observation(shown), tuple(shown), scored=True)

    def _go_on(
        self,
        text: str,
        action: Action,
        observation: str,
        passages: tuple[Passage, ...],
        *,
        scored: bool = False,
        error: str = "",
    ) -> Step:
        """A turn that does not end the episode by itself; the turn limit may."""
        out_of_turns = self._turns + 1 >= self.rules.max_turns
        answer_only = self._searches_spent or self._turns + 2 >= self.rules.max_turns
        if answer_only and not out_of_turns:
            observation += self.rules.protocol.budget_spent()
        stop = StopReason.MAX_TURNS if out_of_turns else None
        return self._record(text, action, observation, passages, stop, scored=scored, error=error)

    def _finish(self, text: str, action: Action, observation: str, stop: StopReason) -> Step:
        return self._record(text, action, observation, (), stop)

    def _record(
        self,
        text: str,
        action: Action,
        observation: str,
        passages: tuple[Passage, ...],
        stop: StopReason | None,
        *,
        scored: bool = False,
        error: str = "",
    ) -> Step:
        self.stop = stop
        self._observation = observation
        self._exchanges.append(Exchange(text, observation, passages))
        gain = MISSING
        if self.rules.scorer is not None and (scored or stop is None):
            # Scored after turns without a search too: what they wrote may move a model's value, and is not the next
            # search's gain.
            value = self._score()
            gain = value - self._value if scored else MISSING
            self._value = value
        info = self._info(
            action=str(action.kind),
            query=action.text if action.kind is ActionKind.SEARCH else "",
            answer=action.text if action.kind is ActionKind.ANSWER else "",
            passages=passages,
            gain=gain,
            format_ok=action.format_ok,
            error=error,
        )
        reward = info["outcome"] + info["shaping"] if stop is not None else 0.0
        return Step(observation, reward, stop is StopReason.ANSWERED, stop not in (None, StopReason.ANSWERED), info)

    def _score(self) -> float:
        if self.rules.scorer is None:
            return MISSING
        return float(self.rules.scorer(self.transcript, self.question.answers))

    def _info(
        self,
        *,
        action: str,
        query: str = "",
        answer: str = "",
        passages: Sequence[Passage] = (),
        gain: float = MISSING,
        format_ok: bool = True,
        error: str = "",
    ) -> Info:
        """The info of a step: always the same keys and types. Scores are 0.0 until the episode ends, and stay 0.0 if it
        ends unanswered.
        """
        answered = answer if self.stop is StopReason.ANSWERED else None
        golds = self.question.answers
        return {
            "question_id": self.question.id,
            "turn": self._turns,
            "action": action,
            "query": query,
            "answer": answer,
            "passage_ids": tuple(passage.id for passage in passages),
            "retrieval_failed": bool(error),
            "retrieval_error": error,
            "retrieval_failures": self._failures,
            "answer_logprob": self._value,
            "information_gain": gain,
            "outcome": 0.0 if self.stop is None else float(self.rules.outcome(answered, golds)),
            "shaping": 0.0 if self.stop is None else 0.0 - self.rules.format_penalty * self._format_errors,
            "em": 0.0 if answered is None else exact_match(answered, golds),
            "f1": 0.0 if answered is None else f1(answered, golds),
            "format_ok": format_ok,
            "searches": self._searches,
            "invalid_actions": self._invalid,
            "stop": "" if self.stop is None else str(self.stop),
            "state_key": self._observation,
            "gold_answers": golds,
        }
