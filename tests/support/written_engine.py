"""An engine that writes what a test tells it to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from a2tgpo.engines.base import Request, Sample, Sampling
from a2tgpo.policy import Policy


@dataclass
class WrittenEngine:
    """Answers every row in flight with what `reply` makes of it: the token ids of a complete action."""

    reply: Callable[[Request], Sequence[int]]
    waiting: list[Request] = field(default_factory=list)

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        self.waiting.append(Request(key, tuple(prompt), sampling, seed))

    def collect(self) -> list[tuple[int, Sample]]:
        requests, self.waiting = sorted(self.waiting, key=lambda row: row.key), []
        written = [(row.key, tuple(self.reply(row))) for row in requests]
        return [(key, Sample(ids, (-1.0,) * len(ids), True)) for key, ids in written]

    def load_weights(self, policy: Policy, version: int) -> None: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...


def encoder(tokenizer: Any) -> Callable[[str], Sequence[int]]:
    """Text -> token ids, without special tokens."""
    return lambda text: tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
