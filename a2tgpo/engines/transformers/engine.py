"""Generation with the policy's own transformers model: no second copy of the weights, the KV cache kept between the
turns of an episode.

All rows in flight are generated together, in the order of their keys. A prompt that continues the last row of its key
reuses that row's cache, and only its new tokens are fed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.engines.base import Request, Sample, Sampling, in_flight, nothing_in_flight
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.transformers.cache import PositionCache
from a2tgpo.engines.transformers.forward import Forward, forward_of
from a2tgpo.policy import Policy


@dataclass(slots=True)
class _Row:
    """A prompt and what was sampled after it. Once collected, all of its tokens but the last have keys and values."""

    key: int
    prompt: list[int]
    limit: int
    """Tokens that may be sampled."""
    cached: int = 0
    """Leading tokens of the prompt that had keys and values before."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    complete: bool = False

    @property
    def finished(self) -> bool:
        return self.complete or len(self.token_ids) >= self.limit

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    def is_continued_by(self, prompt: Sequence[int]) -> bool:
        return [*self.prompt, *self.token_ids][:-1] == list(prompt[: self.length - 1])


@dataclass(slots=True)
class _Batch:
    """What one collection leaves to the next."""

    rows: list[_Row]
    """In the order of the cache."""
    cache: PositionCache
    forward: Forward
    """Made with the weights that the cache was filled with."""

    def turn_to(self, requests: Sequence[Request], capacity: int) -> bool:
        """Become the batch of these requests. A row is found by its key; where its prompt does not continue it, the
        request begins with an empty cache. False, and nothing done, if that is so for all.
        """
        place_of = {row.key: place for place, row in enumerate(self.rows)}
        places, rows = [], []
        for request in requests:
            row = _Row(request.key, list(request.prompt), request.sampling.max_tokens)
            place = place_of.get(request.key)
            if place is not None and (known := self.rows[place]).is_continued_by(request.prompt):
                # at least one token must be fed to get logits
                row.cached = min(known.length, len(request.prompt)) - 1
            places.append(place or 0)  # what a fresh row finds in the cache, it overwrites before it is seen
            rows.append(row)
        if not any(row.cached for row in rows):
            return False
        self.rows = rows
        self.cache.select(places, capacity)
        return True

    def bring_forward(self, active: Sequence[int]) -> list[int]:
        """Let active rows change places with finished ones before them; returns which row stands where now, for as
        many as there are active ones.
        """
        order = list(range(len(active)))
        gaps = [index for index in order if self.rows[index].finished]
        behind = [index for index in active if index >= len(active)]
        for gap, index in zip(gaps, behind, strict=True):
            self.rows[gap], self.rows[index] = self.rows[index], self.rows[gap]
            order[gap] = index
        if gaps:
            self.cache.swap(gaps, behind)
        return order


class TransformersEngine:
    """Engine on the policy's model."""

    def __init__(self, policy: Policy) -> None:
        self._stops: dict[tuple[str, ...], Stops] = {}
        self._waiting: list[Request] = []
        self.load_weights(policy, 0)

    def load_weights(self, policy: Policy, version: int) -> None:
        """The policy's model is used in place, so new weights only make stale what is kept.

        Raises:
            EngineError: if a row is still in flight.
        """
        nothing_in_flight(len(self._waiting))
        self._policy = policy
        self._batch: _Batch | None = None

    def sleep(self) -> None:
        """The cache goes; the weights are the policy's."""
        self._batch = None

    def close(self) -> None:
        self._batch = None

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """See `Engine.submit`."""
        self._waiting.append(Request(key, tuple(prompt), sampling, seed))

    @torch.inference_mode()
    def collect(self) -> list[tuple[int, Sample]]:
        """All rows in flight that are sampled like the first one, but for their limits, in the order of their keys; see
        `Engine.collect`.
        """
        first = in_flight(self._waiting)[0].sampling
        alike = [replace(row.sampling, max_tokens=first.max_tokens) == first for row in self._waiting]
        requests = sorted(compress(self._waiting, alike), key=lambda row: row.key)
        self._waiting = [row for row, same in zip(self._waiting, alike, strict=True) if not same]
        sampling = replace(first, max_tokens=max(row.sampling.max_tokens for row in requests))
        if self._policy.model.training:
            self._policy.model.eval()
        if sampling.stop not in self._stops:
            self._stops[sampling.stop] = Stops(self._policy.tokenizer, sampling.stop, self._policy.end_token_ids)
        capacity = max(len(row.prompt) for row in requests) + sampling.max_tokens
        batch, self._batch = self._batch, None  # a collection that breaks off leaves nothing
        with self._policy.precision():
            if batch is not None and batch.turn_to(requests, capacity):
                hidden, last = self._read(batch)
            else:
                batch, hidden, last = self._fresh(requests, capacity)
            uniforms = _uniforms([row.seed for row in requests], sampling.max_tokens)
            self._sample(batch, hidden, last, sampling, uniforms)
        self._batch = batch
        return [
            (row.key, Sample(tuple(row.token_ids), tuple(row.logprobs), row.complete))
            for row in sorted(batch.rows, key=lambda row: row.key)
        ]

    def _fresh(
        self, requests: Sequence[Request], capacity: int
    ) -> tuple[_Batch, Float[Tensor, "row width"], Int[Tensor, " row"]]:
        """A batch of new prompts, and what `_read` returns. A prompt of several rows, such as that of a group, is read
        once.
        """
        place = {prompt: index for index, prompt in enumerate(dict.fromkeys(row.prompt for row in requests))}
        cache = PositionCache(self._policy.model.config.num_hidden_layers, len(place), capacity)
        distinct = [_Row(index, list(prompt), 0) for prompt, index in place.items()]
        batch = _Batch(distinct, cache, forward_of(self._policy.model, cache))
        hidden, last = self._read(batch)
        places = [place[row.prompt] for row in requests]
        batch.rows = [_Row(row.key, list(row.prompt), row.sampling.max_tokens) for row in requests]
        if len(place) < len(requests):
            cache.select(places, capacity)
        return batch, hidden[places], last[places]

    def _sample(
        self,
        batch: _Batch,
        hidden: Float[Tensor, "row width"],
        last: Int[Tensor, " row"],
        sampling: Sampling,
        uniforms: Float[np.ndarray, "row step"],
    ) -> None:
        """Append to all rows, from what `_read` returns. Rows that are still computed come first."""
        rows, forward, stops, head = (
            batch.rows,
            batch.forward,
            self._stops[sampling.stop],
            self._policy.model.get_output_embeddings(),
        )
        uniform = torch.from_numpy(uniforms).to(self._policy.device)
        columns = max(len(row.prompt) for row in rows)
        step = forward.steps(last, columns, sampling.max_tokens - 1)
        for number in range(sampling.max_tokens):
            tokens, logprobs = _draw(head(hidden).float(), sampling.temperature, uniform[:, number])
            for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=False):
                if not row.finished:
                    row.token_ids.append(token)
                    row.logprobs.append(logprob)
                    row.complete = token in stops.candidates and stops.completed(row.token_ids)
            active = [index for index, row in enumerate(rows) if not row.finished]
            if not active:
                break
            if len(active) <= len(tokens) // 2:  # finished rows are computed along until dropping them is worth it
                order = torch.tensor(batch.bring_forward(active), device=tokens.device)
                tokens, last, uniform = tokens[order], last[order], uniform[order]
                step = forward.steps(last + number, columns + number, sampling.max_tokens - 1 - number)
            hidden = step(tokens)

    def _read(self, batch: _Batch) -> tuple[Float[Tensor, "row width"], Int[Tensor, " row"]]:
        """Feed what is new of the prompts; last hidden state, and position, of each prompt's last token."""
        device = self._policy.device
        new = [row.prompt[row.cached :] for row in batch.rows]
        width = max(len(ids) for ids in new)
        token_ids = torch.tensor([ids + [0] * (width - len(ids)) for ids in new], device=device)
        starts = torch.tensor([row.cached for row in batch.rows], device=device)
        end = torch.tensor([len(ids) - 1 for ids in new], device=device)
        positions = (starts[:, None] + torch.arange(width, device=device)).clamp(max=batch.cache.capacity)
        return batch.forward.read(token_ids, positions, end, max(len(row.prompt) for row in batch.rows)), starts + end


def _uniforms(seeds: Sequence[int], count: int) -> Float[np.ndarray, "row step"]:
    """One stream of uniform numbers per row, from the row's own seed alone: those of `Generator(Philox(seed))`, which
    take longer to make than to use.
    """
    philox = np.random.Philox(0)
    generator, state = np.random.Generator(philox), philox.state
    result = np.empty((len(seeds), count))
    for seed, row in zip(seeds, result, strict=True):
        key: Any = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        state["state"]["key"] = key
        philox.state = state
        generator.random(out=row)
    return result


def _draw(
    logits: Float[Tensor, "row vocabulary"], temperature: float, uniform: Float[Tensor, " row"]
) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
    """Draw by inverting the cumulative distribution at `uniform`: the token depends on the row's own numbers only."""
    probabilities = torch.softmax(logits if temperature in (0, 1) else logits / temperature, dim=-1)
    if temperature == 0:
        tokens = logits.argmax(dim=-1, keepdim=True)
    else:
        cumulative = probabilities.cumsum(dim=-1, dtype=torch.double)
        target = cumulative.narrow(1, -1, 1) * uniform[:, None]
        tokens = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    return tokens.squeeze(1), probabilities.gather(1, tokens).squeeze(1).log()
