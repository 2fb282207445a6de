"""Which questions a step asks, and the seeds of its episodes: functions of the run's seed and the step."""

from collections.abc import Sequence

import numpy as np

from a2tgpo.envs import Question
from a2tgpo.errors import ConfigError
from a2tgpo.training.rollout import Task


class QuestionStream:
    """An endless, seeded order of questions: the same for every algorithm of a study that shares the seed, and a pure
    function of (seed, step).
    """

    def __init__(self, questions: Sequence[Question], per_step: int, seed: int) -> None:
        if len(questions) < per_step:
            raise ConfigError(
                f"rollout.questions: got {per_step}, but the split has only {len(questions)} questions; lower it or use"
                " a larger split"
            )
        self._questions, self._per_step, self._seed = questions, per_step, seed

    def at(self, step: int) -> list[Question]:
        """The questions of a step, all different."""
        per_epoch = len(self._questions) // self._per_step
        epoch, place = divmod(step, per_epoch)
        return self._slice(np.random.default_rng((self._seed, epoch)), place)

    def spare(self, step: int, attempt: int, count: int, asked: Sequence[Question]) -> list[Question]:
        """Up to `count` other questions for a step than those already asked; drawn beside the stream, which continues
        unchanged.
        """
        if count <= 0:
            return []
        taken = {question.id for question in asked}
        order = np.random.default_rng((self._seed, step, attempt)).permutation(len(self._questions))
        return [self._questions[index] for index in order if self._questions[index].id not in taken][:count]

    def _slice(self, rng: np.random.Generator, place: int) -> list[Question]:
        order = rng.permutation(len(self._questions))[place * self._per_step : (place + 1) * self._per_step]
        return [self._questions[index] for index in order]


def tasks_of(questions: Sequence[Question], group_size: int, *, seed: int, step: int, attempt: int) -> list[Task]:
    """Episodes for the questions; each has a seed of its own that depends on run seed, step, attempt and place only."""
    first = ((seed * 100_000 + step) * 100 + attempt) * 100_000
    return [
        Task(group, question.id, first + group * group_size + place)
        for group, question in enumerate(questions)
        for place in range(group_size)
    ]


def fixed_subset(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """The same `count` questions every time: a seeded draw without replacement, in the data set's order."""
    if count >= len(questions):
        return list(questions)
    chosen = np.random.default_rng(seed).choice(len(questions), size=count, replace=False)
    return [questions[index] for index in sorted(chosen)]
