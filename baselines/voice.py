"""A language model as reference agents use it: text in, text out, many at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from a2tgpo.baselines.script import Generate
from a2tgpo.engines.base import Engine, Sampling
from a2tgpo.errors import ConfigError
from a2tgpo.policy.chat import Chat


@dataclass(frozen=True, slots=True)
class Utterance:
    """One continuation."""

    text: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]


@dataclass(frozen=True)
class Voice:
    """An engine with the texts' way to its tokens."""

    engine: Engine
    chat: Chat
    max_tokens: int
    """Tokens of a prompt and its continuation together: the model's context."""
    max_new_tokens: int = 64
    temperature: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.max_new_tokens < self.max_tokens:
            raise ConfigError(
                f"voice.max_new_tokens: got {self.max_new_tokens}, expected a number from 1 to below the model's"
                f" context of {self.max_tokens}"
            )

    def speak(self, requests: Sequence[Generate], seeds: Sequence[int]) -> list[Utterance | None]:
        """A continuation for every request; None for a prompt that leaves no room for one in the model's context."""
        prompts = [self.chat.prompt_ids(request.prompt) for request in requests]
        spoken: list[Utterance | None] = [None] * len(requests)
        waiting = 0
        for place, (request, prompt, seed) in enumerate(zip(requests, prompts, seeds, strict=True)):
            if len(prompt) + self.max_new_tokens <= self.max_tokens:
                sampling = Sampling(self.max_new_tokens, request.stop, self.temperature)
                self.engine.submit(place, prompt, sampling, seed)
                waiting += 1
        while waiting:
            for place, sample in self.engine.collect():
                spoken[place] = Utterance(self.chat.decode(sample.token_ids), tuple(prompts[place]), sample.token_ids)
                waiting -= 1
        return spoken
