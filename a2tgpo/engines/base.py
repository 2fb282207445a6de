"""What generates text: token ids in, token ids out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from a2tgpo.errors import EngineError
from a2tgpo.policy import Policy


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Training uses temperature 1 without truncation: anything else biases the importance
    ratio.
    """

    max_tokens: int
    """Sampled tokens per row at most."""
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


@dataclass(frozen=True, slots=True)
class Request:
    """A row in flight."""

    key: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int


@runtime_checkable  # test runs check annotations with isinstance
class Engine(Protocol):
    """Generates for the policy. Implementations keep whatever they can of earlier rows (KV cache, prefix cache)."""

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """Put a row into flight under a key that no other row in flight has. A prompt that continues the last row of
        that key, sample included, costs its new tokens only. A row's result depends on prompt, sampling and seed, not
        on its companions.
        """
        ...

    def collect(self) -> list[tuple[int, Sample]]:
        """Generate until at least one row is finished; all that are, with their keys.

        Raises:
            EngineError: if nothing is in flight.
        """
        ...

    def load_weights(self, policy: Policy, version: int) -> None:
        """Generate with these weights from now on; every cache of older weights is dropped."""
        ...

    def sleep(self) -> None:
        """Give memory back for the update. The next call is `load_weights`."""
        ...

    def close(self) -> None: ...


def in_flight(rows: Sequence[Request]) -> Sequence[Request]:
    """The rows, of which there must be some when they are to be collected.

    Raises:
        EngineError: if there is none.
    """
    if not rows:
        raise EngineError("engine: asked for finished rows while none is in flight; submit some first")
    return rows


def nothing_in_flight(count: int) -> None:
    """Raise EngineError if rows are in flight that would change their weights half way."""
    if count:
        raise EngineError(
            f"engine: got new weights while {count} rows are in flight, expected none; collect them first, or start"
            " another engine"
        )


def generate(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
) -> list[Sample]:
    """One sample per prompt, in their order; the keys are their places. Nothing else may be in flight."""
    for place, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        engine.submit(place, prompt, sampling, seed)
    samples: dict[int, Sample] = {}
    while len(samples) < len(prompts):
        samples |= dict(engine.collect())
    return [samples[place] for place in range(len(prompts))]
