"""Environment × engine → episodes.

All episodes of a batch are in flight together, and each continues with its next turn as soon as the engine has finished
its action. What a turn saw and what it sampled is written down the moment it happens; an episode's result depends on
its question and seed only.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from a2tgpo.engines.base import Engine, Sample, Sampling
from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.info import StepInfo
from a2tgpo.envs.search_episode import Step
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError, RolloutError
from a2tgpo.policy.chat import Chat

log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds to wait before most of a batch is played again: something is down, and a search engine that failed is not
asked for so long (`CircuitBreaker`).
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One episode to be played."""

    group: int
    question_id: str
    seed: int


@dataclass
class _Play:
    """An episode in the making."""

    task: Task
    token_ids: list[int]
    limit: int
    """Tokens that the episode may have."""
    state_key: str
    """The state that the next turn acts on."""
    context_start: int = 0
    turns: list[Turn] = field(default_factory=list)
    error: str = ""
    """Why the last search that broke did."""
    done: Episode | None = None


class Rollout:
    """Plays tasks in a vector environment with `AutoresetMode.DISABLED`, as many at a time as it has environments."""

    def __init__(
        self,
        env: SearchQAVectorEnv,
        engine: Engine,
        chat: Chat,
        *,
        max_action_tokens: int,
        max_episode_tokens: int,
        max_response_tokens: int = 0,
        replays: int = 2,
    ) -> None:
        self.env = env
        self.supporting = {question.id: question.supporting for question in env.questions}
        self.engine = engine
        self.chat = chat
        self.max_action_tokens = max_action_tokens
        self.max_episode_tokens = max_episode_tokens
        self.max_response_tokens = max_response_tokens
        self.replays = replays
        self._stop = env.protocol.stop_strings

    def __call__(self, tasks: Sequence[Task], temperature: float = 1.0) -> list[Episode]:
        """Play all tasks; the result has their order. Those that something around the agent broke are played again,
        with the same seeds, a bounded number of times.

        Raises:
            ConfigError: if a question's prompt alone is longer than an episode may be.
        """
        sampling = Sampling(self.max_action_tokens, self._stop, temperature)
        episodes = self._play_all(tasks, sampling)
        for _ in range(self.replays):
            failed = [place for place, episode in enumerate(episodes) if episode.failed]
            if not failed:
                break
            log.warning(
                "rollout: %d of %d episodes failed (%s); playing them again",
                len(failed),
                len(episodes),
                cause(episodes),
            )
            if len(failed) > len(episodes) / 2:
                time.sleep(PATIENCE)
            again = self._play_all([tasks[place] for place in failed], sampling)
            for place, episode in zip(failed, again, strict=True):
                episodes[place] = episode
        return episodes

    def prompt_lengths(self, questions: Sequence[Question]) -> list[int]:
        """Tokens of each question's prompt."""
        size = self.env.num_envs
        ids = [question.id for question in questions]
        return [
            len(self.chat.prompt_ids(observation))
            for start in range(0, len(ids), size)
            for observation, _ in self.env.begin(ids[start : start + size])
        ]

    def _play_all(self, tasks: Sequence[Task], sampling: Sampling) -> list[Episode]:
        size = self.env.num_envs
        return [
            episode
            for start in range(0, len(tasks), size)
            for episode in self._play(tasks[start : start + size], sampling)
        ]

    def _play(self, tasks: Sequence[Task], sampling: Sampling) -> list[Episode]:
        plays = self._begin(tasks)
        for index, play in enumerate(plays):
            self._submit(index, play, sampling)
        while any(play.done is None for play in plays):
            samples = dict(self.engine.collect())
            steps = self.env.advance({index: self.chat.decode(row.token_ids) for index, row in samples.items()})
            for index, sample in samples.items():
                self._record(plays[index], sample, steps[index])
                if plays[index].done is None:
                    self._submit(index, plays[index], sampling)
        return [play.done for play in plays if play.done is not None]

    def _submit(self, index: int, play: _Play, sampling: Sampling) -> None:
        """Ask for the next action, of as many tokens as a turn or, without a limit of its own, the episode may have."""
        own = sampling if sampling.max_tokens else replace(sampling, max_tokens=play.limit - len(play.token_ids))
        self.engine.submit(index, play.token_ids, own, _turn_seed(play))

    def _fits(self, play: _Play, shown: int = 0) -> bool:
        """Has the episode room for so many more tokens and an action?"""
        return len(play.token_ids) + shown + max(1, self.max_action_tokens) <= play.limit

    def _begin(self, tasks: Sequence[Task]) -> list[_Play]:
        """Ask the questions."""
        begun = self.env.begin([task.question_id for task in tasks])
        plays = []
        for task, (observation, info) in zip(tasks, begun, strict=True):
            prompt, limit = self.chat.prompt_ids(observation), self.max_episode_tokens
            if self.max_response_tokens:
                limit = min(limit, len(prompt) + self.max_response_tokens)
            plays.append(_Play(task, prompt, limit, info.state_key))
            if not self._fits(plays[-1]):
                raise ConfigError(
                    f"rollout.max_episode_tokens: got {limit}, but the prompt of question {task.question_id!r} alone"
                    f" has {len(prompt)} tokens and a turn may add {max(1, self.max_action_tokens)}; raise the limit or"
                    " drop the question"
                )
        return plays

    def _record(self, play: _Play, sample: Sample, step: Step) -> None:
        """Append the turn to its episode, and its observation to what the next turn sees."""
        info = step.info
        assert info.action is not None
        turn = Turn(
            context_ids=tuple(play.token_ids[play.context_start :]),
            action_ids=sample.token_ids,
            action_logprobs=sample.logprobs,
            action=info.action,
            reward=step.reward,
            state_key=play.state_key,
            query=info.query,
            answer=info.answer,
            passage_ids=info.passage_ids,
            retrieval_failed=info.retrieval_failed,
            format_ok=info.format_ok,
            complete=sample.complete,
        )
        play.turns.append(turn)
        play.token_ids.extend(sample.token_ids)
        play.context_start = len(play.token_ids)
        play.error = info.retrieval_error or play.error
        play.state_key = info.state_key
        answered = info.action is ActionKind.ANSWER
        shown = [] if answered else self.chat.observation_ids(step.observation, sample.token_ids)
        if step.over or not self._fits(play, len(shown)):
            closing = tuple(shown) if len(play.token_ids) + len(shown) <= play.limit else ()
            play.done = self._finished(play, info.stop or StopReason.MAX_TOKENS, closing, info)
        else:
            play.token_ids.extend(shown)

    def _finished(self, play: _Play, stop: StopReason, closing: tuple[int, ...], info: StepInfo) -> Episode:
        """The episode. One in which a search broke has failed, however it ended: its outcome would say more about the
        retriever than about the policy.
        """
        failed = info.retrieval_failures > 0
        return Episode(
            group=play.task.group,
            question_id=play.task.question_id,
            seed=play.task.seed,
            turns=tuple(play.turns),
            outcome=sum(turn.reward for turn in play.turns),
            stop=StopReason.FAILED if failed else stop,
            closing_ids=closing,
            gold_answers=info.gold_answers,
            score=info.score,
            em=info.em,
            f1=info.f1,
            searches=info.searches,
            answer=info.answer,
            supporting=self.supporting[play.task.question_id],
            error=f"retrieval: {play.error}" if failed else "",
            ended=stop if failed else None,
        )


@runtime_checkable  # test runs check annotations with isinstance
class Attempt(Protocol):
    """An episode of whatever player, as far as it concerns whether it could be played."""

    @property
    def failed(self) -> bool: ...

    @property
    def error(self) -> str: ...


def cause(episodes: Sequence[Attempt]) -> str:
    """What most of the failed episodes failed of."""
    (error, count), *_ = Counter(episode.error for episode in episodes if episode.failed).most_common(1)
    return f"{error}" if count == 1 else f"{error}, {count} times"


def check_played(episodes: Sequence[Attempt], most: float, what: str, remedy: str) -> None:
    """Was enough of it played for its numbers to mean something? What they rest on is said where something failed.

    Args:
        most: largest share of episodes that may have failed.
        what: is being played, for the message.
        remedy: what to do once the cause is fixed, for the message.

    Raises:
        RolloutError: if more failed, or all of them; it names the commonest cause.
    """
    failed = sum(episode.failed for episode in episodes)
    if failed > most * len(episodes) or failed == len(episodes):
        raise RolloutError(
            f"rollout: {failed} of {len(episodes)} episodes of {what} failed, also when they were played again"
            f" ({cause(episodes)}), expected at most {most:.0%} (rollout.max_failed); fix what broke, {remedy}"
        )
    if failed:
        counts = failed, len(episodes), what, cause(episodes), len(episodes) - failed
        log.warning("rollout: %d of %d episodes of %s failed (%s); its numbers rest on the other %d", *counts)


def _turn_seed(play: _Play) -> int:
    """A stream of its own for every turn of every episode."""
    return play.task.seed * 1_000_003 + len(play.turns)
