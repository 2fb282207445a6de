"""Environment × engine → episodes.

All episodes of a batch are in flight together. With an engine that streams, an episode goes on to its next turn as soon
as its action is complete; otherwise there is one engine call and one environment step per turn. What a turn saw and
what it sampled is written down the moment it happens; an episode's result depends on its question and seed only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from a2tgpo.engines.base import Engine, Lockstep, Sample, Sampling, StreamingEngine
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError
from a2tgpo.policy.chat import Chat

TURN_INFO = ("query", "answer", "passage_ids", "retrieval_failed", "format_ok")
"""What a turn keeps of the environment's info; the rest is kept elsewhere or can be counted."""


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
    state_key: str
    """The state that the next turn acts on."""
    context_start: int = 0
    turns: list[Turn] = field(default_factory=list)
    total_reward: float = 0.0
    error: str = ""
    """Why the last search that broke did."""
    done: Episode | None = None


class Rollout:
    """Plays tasks in a vector environment with `AutoresetMode.DISABLED`, as many at a time as it has environments."""

    def __init__(
        self, env: SearchQAVectorEnv, engine: Engine, chat: Chat, *, max_action_tokens: int, max_episode_tokens: int
    ) -> None:
        self.env = env
        self.golds = {question.id: question.answers for question in env.questions}
        self.supporting = {question.id: question.supporting for question in env.questions}
        self.engine = engine
        self.chat = chat
        self.max_action_tokens = max_action_tokens
        self.max_episode_tokens = max_episode_tokens
        self._stop = env.protocol.stop_strings

    def __call__(self, tasks: Sequence[Task], temperature: float = 1.0) -> list[Episode]:
        """Play all tasks; the result has their order.

        Raises:
            ConfigError: if a question's prompt alone is longer than an episode may be.
        """
        sampling = Sampling(self.max_action_tokens, self._stop, temperature)
        size = self.env.num_envs
        return [
            episode
            for start in range(0, len(tasks), size)
            for episode in self._play(tasks[start : start + size], sampling)
        ]

    def _play(self, tasks: Sequence[Task], sampling: Sampling) -> list[Episode]:
        plays = self._begin(tasks)
        flight = self.engine if isinstance(self.engine, StreamingEngine) else Lockstep(self.engine)
        for index, play in enumerate(plays):
            flight.submit(index, play.token_ids, sampling, _turn_seed(play))
        while any(play.done is None for play in plays):
            samples = dict(flight.collect())
            actions = [
                self.chat.decode(samples[index].token_ids) if index in samples else None
                for index in range(self.env.num_envs)
            ]
            observations, rewards, terminated, truncated, info = self.env.step(actions)
            columns = _columns(info)
            for index, sample in samples.items():
                ended = bool(terminated[index] or truncated[index])
                self._record(
                    plays[index], sample, observations[index], float(rewards[index]), ended, _row(columns, index)
                )
                if plays[index].done is None:
                    flight.submit(index, plays[index].token_ids, sampling, _turn_seed(plays[index]))
        return [play.done for play in plays if play.done is not None]

    def _begin(self, tasks: Sequence[Task]) -> list[_Play]:
        """Ask the questions; a last, smaller batch leaves environments waiting."""
        padded = [*tasks, *[tasks[-1]] * (self.env.num_envs - len(tasks))]
        observations, info = self.env.reset(
            seed=[task.seed for task in padded], options={"question_ids": [task.question_id for task in padded]}
        )
        plays = [
            _Play(task, self.chat.prompt_ids(observations[index]), info["state_key"][index])
            for index, task in enumerate(tasks)
        ]
        for play in plays:
            if len(play.token_ids) + self.max_action_tokens > self.max_episode_tokens:
                raise ConfigError(
                    f"rollout.max_episode_tokens: got {self.max_episode_tokens}, but the prompt of question"
                    f" {play.task.question_id!r} alone has {len(play.token_ids)} tokens and a turn may add"
                    f" {self.max_action_tokens}; raise the limit or drop the question"
                )
        return plays

    def _record(
        self, play: _Play, sample: Sample, observation: str, reward: float, ended: bool, info: Mapping[str, Any]
    ) -> None:
        """Append the turn to its episode, and its observation to what the next turn sees."""
        context = tuple(play.token_ids[play.context_start :])
        kind = ActionKind(info["action"])
        kept = {key: info[key] for key in TURN_INFO}
        play.turns.append(
            Turn(
                context,
                sample.token_ids,
                sample.logprobs,
                kind,
                reward,
                None,
                play.state_key,
                kept | {"complete": sample.complete},
            )
        )
        play.token_ids.extend(sample.token_ids)
        play.context_start = len(play.token_ids)
        play.total_reward += reward
        play.error = info["retrieval_error"] or play.error
        play.state_key = info["state_key"]
        shown = [] if kind is ActionKind.ANSWER else self.chat.observation_ids(observation, sample.token_ids)
        fits = len(play.token_ids) + len(shown) + self.max_action_tokens <= self.max_episode_tokens
        if ended or not fits:
            stop = StopReason(info["stop"]) if ended else StopReason.MAX_TOKENS
            closing = tuple(shown) if len(play.token_ids) + len(shown) <= self.max_episode_tokens else ()
            play.done = self._finished(play, stop, closing, info)
        else:
            play.token_ids.extend(shown)

    def _finished(self, play: _Play, stop: StopReason, closing: tuple[int, ...], info: Mapping[str, Any]) -> Episode:
        """The episode. One in which a search broke has failed, however it ended: its outcome would say more about the
        retriever than about the policy.
        """
        kept = {key: info[key] for key in ("em", "f1", "outcome", "searches", "answer")} | {
            "supporting": self.supporting[play.task.question_id]
        }
        if info["retrieval_failures"]:
            kept |= {"error": f"retrieval: {play.error}", "ended": str(stop)}
            stop = StopReason.FAILED
        return Episode(
            group=play.task.group,
            question_id=play.task.question_id,
            seed=play.task.seed,
            turns=tuple(play.turns),
            outcome=play.total_reward,
            stop=stop,
            closing_ids=closing,
            gold_answers=self.golds[play.task.question_id],
            info=kept,
        )


def _columns(info: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """A vector environment's info in plain Python values."""
    return {key: values.tolist() for key, values in info.items() if not key.startswith("_")}


def _row(columns: Mapping[str, Sequence[Any]], index: int) -> dict[str, Any]:
    """One environment's part."""
    return {key: values[index] for key, values in columns.items()}


def _turn_seed(play: _Play) -> int:
    """A stream of its own for every turn of every episode."""
    return play.task.seed * 1_000_003 + len(play.turns)
