"""Scores of a policy on held-out questions, with the very rollout that training uses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from a2tgpo.envs.records import Question
from a2tgpo.episode import Episode, StopReason
from a2tgpo.means import mean
from a2tgpo.training.rollout import Rollout, Task


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Episodes of an evaluation, one per question, in the order of the questions."""

    questions: tuple[Question, ...]
    episodes: tuple[Episode, ...]

    @property
    def metrics(self) -> dict[str, float]:
        """Means over questions; shares lie in 0 … 1, `gain_per_turn` is in nats per scored search turn."""
        per_hops: dict[str, float] = {}
        for hops in sorted({question.hops for question in self.questions if question.hops}):
            chosen = [
                episode
                for question, episode in zip(self.questions, self.episodes, strict=True)
                if question.hops == hops and not episode.failed
            ]
            per_hops[f"em_{hops}_hops"] = mean(episode.em for episode in chosen)
        questions = float(sum(not episode.failed for episode in self.episodes))
        return episode_metrics(self.episodes) | per_hops | {"questions": questions}

    def failed(self) -> list[dict[str, Any]]:
        """The questions that could not be played, and why; no other number knows of them."""
        return [
            {"question_id": episode.question_id, "error": episode.error} for episode in self.episodes if episode.failed
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One row per question that was played, for paired comparisons."""
        return [
            {
                "question_id": question.id,
                "question": question.text,
                "gold_answers": list(question.answers),
                "hops": question.hops,
                "type": question.type,
                "answer": episode.answer,
                "em": episode.em,
                "f1": episode.f1,
                "searches": float(episode.searches),
                "turns": episode.num_turns,
                "tokens": episode.num_tokens,
                "stop": str(episode.stop),
                "information_gain": mean(_gains(episode)),
            }
            for question, episode in zip(self.questions, self.episodes, strict=True)
            if not episode.failed
        ]


def evaluate(rollout: Rollout, questions: Sequence[Question], *, seed: int, temperature: float = 0.0) -> Evaluation:
    """Play one episode per question; greedy unless a temperature is given.

    Greedy episodes are deterministic. Sampled ones depend on `seed` and the question's place only, so every policy
    meets the same random numbers.
    """
    tasks = [Task(index, question.id, seed * 1_000_000 + index) for index, question in enumerate(questions)]
    return Evaluation(tuple(questions), tuple(rollout(tasks, temperature)))


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What describes a set of episodes, whoever played them. Failed episodes are counted and left out of everything
    else.
    """
    played = [episode for episode in episodes if not episode.failed]
    lengths = [float(episode.num_action_tokens) for episode in played]
    return {
        "em": mean(episode.em for episode in played),
        "f1": mean(episode.f1 for episode in played),
        "outcome": mean(episode.outcome for episode in played),
        "answered": mean(float(episode.stop is StopReason.ANSWERED) for episode in played),
        "searches": mean(float(episode.searches) for episode in played),
        "turns": mean(float(episode.num_turns) for episode in played),
        "tokens": mean(float(episode.num_tokens) for episode in played),
        "action_tokens": mean(lengths),
        "action_tokens_min": min(lengths, default=math.nan),
        "action_tokens_max": max(lengths, default=math.nan),
        "valid_format": mean(float(episode.valid_format) for episode in played),
        "invalid_turns": mean(float(turn.action == "invalid") for episode in played for turn in episode.turns),
        "gain_per_turn": mean(gain for episode in played for gain in _gains(episode)),
        "failed": mean(float(episode.failed) for episode in episodes),
    }


def _gains(episode: Episode) -> list[float]:
    return [turn.information_gain for turn in episode.turns if turn.information_gain is not None]
