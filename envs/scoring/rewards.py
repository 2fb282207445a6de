"""Outcomes of episodes: an answer's score, alone or together with how the whole episode is written."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Real
from typing import Any, cast

from a2tgpo.checks import did_you_mean
from a2tgpo.envs.records import Question
from a2tgpo.envs.scoring.answers import ANSWER_SCORES, AnswerScore, exact_match
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EpisodeFormat:
    """How a finished episode was written, by the rules of its protocol."""

    turns: int
    errors: int
    """Turns that broke the format, those without a valid action among them."""
    answered: bool
    """Did it end with an answer, rather than at a limit?"""

    @property
    def valid(self) -> bool:
        """Was it written as the protocol asks, from the first turn to the answer?"""
        return self.answered and self.errors == 0


Reward = Callable[[str | None, Sequence[str], EpisodeFormat], float]
"""(answer or None, gold answers, format of the episode) -> outcome."""


def em_format(answer: str | None, gold_answers: Sequence[str], form: EpisodeFormat) -> float:
    """Exact match if the format of the whole episode is valid, -1 otherwise (arXiv 2605.06200, eq. 13-15)."""
    return exact_match(answer, gold_answers) if form.valid else -1.0


def _of_answer(score: AnswerScore) -> Reward:
    """A reward that does not look at the format."""

    @wraps(score)
    def reward(answer: str | None, gold_answers: Sequence[str], _form: EpisodeFormat) -> Any:
        return score(answer, gold_answers)  # a user's may return anything; `score_of` looks

    return reward


REWARDS: dict[str, Reward] = {name: _of_answer(score) for name, score in ANSWER_SCORES.items()} | {
    "em_format": em_format
}


def reward_of(reward: object) -> Reward:
    """The reward of that name, or one's own: a callable of answer, gold answers and, if it takes a third argument, the
    episode's format.

    Raises:
        ConfigError: for an unknown name, or a callable that takes other arguments.
    """
    if isinstance(reward, str):
        if reward not in REWARDS:
            raise ConfigError(
                f"reward: got {reward!r}, expected one of {', '.join(REWARDS)} or a callable (answer, gold answers,"
                f" format) -> float{did_you_mean(reward, REWARDS)}"
            )
        return REWARDS[reward]
    if _takes(reward, 3):
        return cast(Reward, reward)
    if _takes(reward, 2):
        return _of_answer(cast(AnswerScore, reward))
    raise ConfigError(
        f"reward: got {reward!r}, expected a callable of answer (None where there is none), gold answers and the"
        " episode's format (EpisodeFormat), which returns a number"
    )


def _takes(reward: object, arguments: int) -> bool:
    if not callable(reward):
        return False
    try:
        inspect.signature(reward).bind(*[None] * arguments)
    except (TypeError, ValueError):
        return False
    return True


def score_of(reward: Reward, question: Question, answer: str | None, form: EpisodeFormat) -> float:
    """What the reward gives a finished episode of the question.

    Raises:
        ConfigError: if it raises, or gives anything but a finite number; names the reward's file and the question.
    """
    try:
        value: object = reward(answer, question.answers, form)
    except Exception as error:
        raise ConfigError(
            f"{_place(reward)}: raised {type(error).__name__}: {error}; for answer {answer!r} to question"
            f" {question.id!r}, expected a number"
        ) from error
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(
            f"{_place(reward)}: got {value!r} ({type(value).__name__}) for answer {answer!r} to question"
            f" {question.id!r}, expected a finite number"
        )
    return float(value)


def _place(reward: Reward) -> str:
    """The reward's name, and the file that it stands in."""
    inner = inspect.unwrap(reward)
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__name__", type(inner).__name__)
    return f"reward {code.co_filename}:{name}" if code else f"reward {name}"
