"""What generates text: token ids in, token ids out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from a2tgpo.policy import Policy


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Training uses temperature 1 without truncation: anything else biases the importance
    ratio.
    """

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
        """One sample per prompt. A row's result depends on its prompt and seed, not on its companions or their
        order.
        """
        ...

    def load_weights(self, policy: Policy, version: int) -> None:
        """Generate with these weights from now on; every cache of older weights is dropped."""
        ...

    def sleep(self) -> None:
        """Give memory back for the update. The next call is `load_weights`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine whose rows need not wait for each other: a finished one is handed out while others still grow."""

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """Put a row into flight under a key that no other row in flight has."""
        ...

    def collect(self) -> list[tuple[int, Sample]]:
        """Go on until at least one row is finished; all that are, with their keys."""
        ...


@dataclass
class Lockstep:
    """Any engine behind `submit` and `collect`: what is in flight is generated together when it is collected."""

    engine: Engine
    _waiting: list[tuple[int, Sequence[int], Sampling, int]] = field(default_factory=list)

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """Put a row into flight; all rows in flight share one `sampling`."""
        self._waiting.append((key, prompt, sampling, seed))

    def collect(self) -> list[tuple[int, Sample]]:
        """All rows in flight, in the order of their keys."""
        keys, prompts, samplings, seeds = zip(*sorted(self._waiting, key=lambda row: row[0]), strict=True)
        self._waiting = []
        return list(zip(keys, self.engine.generate(prompts, samplings[0], seeds), strict=True))
