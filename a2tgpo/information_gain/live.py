"""The policy as the environment's scorer: the value of the gold answer during a live episode, computed by the model
itself or by the engine that holds it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from a2tgpo.batch import TokenBatch
from a2tgpo.envs.scoring.gold_value import Transcript
from a2tgpo.errors import NumericalError
from a2tgpo.information_gain.probe_pass import pass_with_probes
from a2tgpo.information_gain.probes import build_probe, gold_values, scored_texts
from a2tgpo.information_gain.score import Scoring
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat


@dataclass(frozen=True, slots=True)
class PolicyScorer:
    """Callable `(transcript, gold answers) -> value` for the `scorer` slot of an environment.

    Its values are those of `a2tgpo.information_gain.score_episodes` on the episode that a rollout with the same `chat`
    records, as long as the policy's texts encode to the tokens that it sampled (a transcript is text; the recorded
    episode keeps the tokens themselves). One forward pass over the transcript per call.
    """

    policy: Policy
    chat: Chat
    scoring: Scoring
    """With a scaffold; its scaffold and aliases count."""

    def __call__(self, transcript: Transcript, answers: Sequence[str]) -> float:
        """Mean log-probability of the gold answer in nats; NaN (missing) when the transcript with the answer
        exceeds the model's context.

        Raises:
            ConfigError: if no gold answer can be scored.
            NumericalError: if the value is not finite.
        """
        scoring = self.scoring
        assert scoring.scaffold is not None
        probe = build_probe(self.policy.tokenizer, scoring.scaffold, answers, scoring.aliases, transcript.question)
        token_ids = transcript_ids(self.chat, transcript)
        if len(token_ids) + probe.reach > self.policy.max_tokens:
            return math.nan
        row = torch.tensor([token_ids], device=self.policy.device)
        batch = TokenBatch(
            row,
            torch.ones_like(row, dtype=torch.bool),
            torch.full_like(row, -1),
            torch.zeros(row.shape, device=row.device),
        )
        with torch.no_grad():
            result = pass_with_probes(self.policy, batch, [[len(token_ids)]], [probe], entropy="skip")
        return _checked(result.gold_logprobs[0], scoring, transcript)


@runtime_checkable
class ScoringEngine(Protocol):
    """An engine that can tell the log-probabilities of given tokens."""

    def score(self, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[float]]:
        """Per row, the log-probabilities of its tokens from index `start` on."""
        ...


@dataclass(frozen=True, slots=True)
class EngineScorer:
    """The same values as `PolicyScorer`'s, up to rounding, from the engine's copy of the weights: a row per alias,
    whose known beginning is not computed again.

    For use beside a rollout on that engine, with nothing in flight.
    """

    engine: ScoringEngine
    chat: Chat
    scoring: Scoring
    """As for `PolicyScorer`."""
    max_tokens: int
    """Longest row that the engine can score."""

    def __call__(self, transcript: Transcript, answers: Sequence[str]) -> float:
        """Value of the gold answer, as `PolicyScorer`'s; NaN when transcript and answer together exceed `max_tokens`.

        Raises:
            ConfigError: if no gold answer can be scored.
            NumericalError: if the value is not finite.
        """
        scoring = self.scoring
        assert scoring.scaffold is not None
        texts = scored_texts(self.chat.tokenizer, scoring.scaffold, answers, scoring.aliases, transcript.question)
        token_ids = transcript_ids(self.chat, transcript)
        rows = [[*token_ids, *text.token_ids] for text in texts]
        if max(map(len, rows)) > self.max_tokens:
            return math.nan
        scores = self.engine.score(rows, [len(token_ids) + text.first for text in texts])
        means = np.array([[np.mean(row) for row in scores]])
        return _checked(means, scoring, transcript)


def transcript_ids(chat: Chat, transcript: Transcript) -> list[int]:
    """A transcript's tokens, as a rollout would have recorded them."""
    token_ids = chat.prompt_ids(transcript.prompt)
    for exchange in transcript.exchanges:
        action_ids = chat.action_ids(exchange.action)
        token_ids += [*action_ids, *chat.observation_ids(exchange.observation, action_ids)]
    return token_ids


def _checked(gold_logprobs: NDArray[np.float64], scoring: Scoring, transcript: Transcript) -> float:
    value = float(gold_values(gold_logprobs, scoring.aliases, "logprob")[0])
    if not math.isfinite(value):
        raise NumericalError(
            f"policy scorer: the gold answer's value is {value} for the question {transcript.question!r}, expected a"
            " finite number"
        )
    return value
