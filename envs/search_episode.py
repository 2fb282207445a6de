"""The rules of one search-QA episode, as a state machine without a retriever.

`SearchQAEnv` drives one, `SearchQAVectorEnv` many; both only add the retriever call between `propose` and `resolve`, so
they cannot disagree.

Limits. `max_turns` counts every turn. `max_searches` counts searches that reached the retriever; the first search asked
for beyond it is not run and ends the episode (`stop="max_searches"`). The observation after which only an answer can
still count says so; that may be the first, the prompt. A search in the last turn is run, so that the turn has an
information gain, and its result is returned although no turn can act on it. A search that failed is not charged to the
search budget.
"""

from collections.abc import Sequence
from typing import NamedTuple

from a2tgpo.envs.info import StepInfo
from a2tgpo.envs.protocols.base import Action
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.scoring.answers import exact_match, f1
from a2tgpo.envs.scoring.gold_value import Exchange, Transcript
from a2tgpo.envs.scoring.rewards import EpisodeFormat, score_of
from a2tgpo.envs.settings import Rules
from a2tgpo.episode import ActionKind, StopReason
from a2tgpo.errors import ConfigError, RetrievalError


class Step(NamedTuple):
    """What a turn led to."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: StepInfo

    @property
    def over(self) -> bool:
        """Has the episode ended?"""
        return self.terminated or self.truncated


class SearchEpisode:
    """One running episode. Call `propose`, run the search if it returns a query, then `resolve`."""

    def __init__(self, question: Question, rules: Rules) -> None:
        self.question = question
        self.rules = rules
        self.prompt = rules.prompt(question.text)
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

    def start(self) -> tuple[str, StepInfo]:
        """The first observation and info."""
        return self.prompt, self._info(None)

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
            hits: what the search found, best first, or how it failed. Ignored unless `propose` returned a query.
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
                return self._continue(text, action, self.rules.protocol.corrective(), ())
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
            return self._continue(
                text, action, protocol.retrieval_failure(), (), error=str(hits) or type(hits).__name__
            )
        self._searches += 1
        shown = self.rules.budget.fit(hits[: self.rules.top_k])
        return self._continue(text, action, protocol.observation(shown), tuple(shown), scored=True)

    def _continue(
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
        gain: float | None = None
        if self.rules.scorer is not None and (scored or stop is None):
            # Scored after turns without a search too: what they wrote may move a model's value, and is not the next
            # search's gain.
            value = self._score()
            gain = value - self._value if scored and value is not None and self._value is not None else None
            self._value = value
        info = self._info(action, passages, gain, error)
        reward = 0.0 if stop is None else info.outcome
        return Step(observation, reward, stop is StopReason.ANSWERED, stop not in (None, StopReason.ANSWERED), info)

    def _score(self) -> float | None:
        if self.rules.scorer is None:
            return None
        return _number(self.rules.scorer(self.transcript, self.question.answers))

    def _info(
        self,
        action: Action | None,
        passages: Sequence[Passage] = (),
        gain: float | None = None,
        error: str = "",
    ) -> StepInfo:
        """The info after an action, or after the reset."""
        kind, text = (None, "") if action is None else (action.kind, action.text)
        answered = text if self.stop is StopReason.ANSWERED else None
        gold_answers = self.question.answers
        form = EpisodeFormat(self._turns, self._format_errors, self.stop is StopReason.ANSWERED)
        score = 0.0 if self.stop is None else score_of(self.rules.reward, self.question, answered, form)
        shaping = 0.0 if self.stop is None else 0.0 - self.rules.format_penalty * self._format_errors
        return StepInfo(
            question_id=self.question.id,
            turn=self._turns,
            action=kind,
            query=text if kind is ActionKind.SEARCH else "",
            answer=text if kind is ActionKind.ANSWER else "",
            passage_ids=tuple(passage.id for passage in passages),
            retrieval_failed=bool(error),
            retrieval_error=error,
            retrieval_failures=self._failures,
            answer_logprob=self._value,
            information_gain=gain,
            score=score,
            shaping=shaping,
            outcome=score + shaping,
            em=0.0 if answered is None else exact_match(answered, gold_answers),
            f1=0.0 if answered is None else f1(answered, gold_answers),
            format_ok=action is None or action.format_ok,
            searches=self._searches,
            invalid_actions=self._invalid,
            stop=self.stop,
            state_key=self._observation,
            gold_answers=gold_answers,
        )


def _number(value: object) -> float:
    """What the scorer returned, perhaps one of the user's own."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"scorer: got {value!r} from the callable, expected a number") from error
