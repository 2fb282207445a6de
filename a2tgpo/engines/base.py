"""What generates text: token ids in, token ids out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from a2tgpo.policy import Policy


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Training uses temperature 1 without truncation: anything else biases the importance ratio."""

    max_tokens: int
    """Sampled tokens per call and row at most."""
    stop: tuple[str, ...]
    """Generation of a row ends with the token that completes one of these strings; that token belongs to the sample."""
    temperature: float = 1.0
    """0 = greedy."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One generation."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each token under the distribution that it was drawn from (greedy: under temperature 1)."""
    complete: bool
    """Did a stop string or the end token end it (rather than the token limit)?"""


@runtime_checkable  # test runs check annotations with isinstance
class Engine(Protocol):
    """Generates for the policy. Implementations keep whatever they can of earlier calls (KV cache, prefix cache)."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]) -> list[Sample]:
        """One sample per prompt. A row's result depends on its prompt and seed, not on its companions or their order."""
        ...

    def load_weights(self, policy: Policy, version: int) -> None:
        """Generate with these weights from now on; every cache of older weights is dropped."""
        ...

    def close(self) -> None: ...
