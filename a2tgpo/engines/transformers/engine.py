"""Generation with the policy's own transformers model: no second copy of the weights, the KV cache kept between the
turns of an episode.

A prompt that continues a row of the previous call reuses that row's cache and only its new tokens are fed; nobody has
to say which row it continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.engines.base import Sample, Sampling
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.transformers.cache import PositionCache
from a2tgpo.engines.transformers.forward import Forward, forward_of
from a2tgpo.policy import Policy


@dataclass(slots=True)
class _Row:
    """A prompt and what was sampled after it. After its call, all of its tokens but the last have keys and values."""

    index: int
    """Of the prompt in its call."""
    prompt: list[int]
    cached: int = 0
    """Leading tokens of the prompt that had keys and values before the call."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    complete: bool = False

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    def is_continued_by(self, prompt: Sequence[int]) -> bool:
        return [*self.prompt, *self.token_ids][:-1] == list(prompt[: self.length - 1])


@dataclass(slots=True)
class _Batch:
    """What a call leaves to the next one."""

    rows: list[_Row]
    """In the order of the cache."""
    cache: PositionCache
    forward: Forward
    """Made with the weights that the cache was filled with."""

    def go_on(self, prompts: Sequence[Sequence[int]], capacity: int) -> bool:
        """Become the batch of these prompts if each continues a row, in the order of the previous call; other rows are
        dropped.
        """
        before = sorted(enumerate(self.rows), key=lambda item: item[1].index)
        kept, rows, cursor = [], [], 0
        for index, prompt in enumerate(prompts):
            match = next(
                (number for number in range(cursor, len(before)) if before[number][1].is_continued_by(prompt)), None
            )
            if match is None:
                return False
            place, row = before[match]
            kept.append(place)
            # at least one token must be fed to get logits
            rows.append(_Row(index, list(prompt), cached=min(row.length, len(prompt)) - 1))
            cursor = match + 1
        self.rows = rows
        self.cache.select(kept, capacity)
        return True

    def bring_forward(self, active: Sequence[int]) -> list[int]:
        """Let active rows change places with completed ones before them; returns which row stands where now, for as
        many as there are active ones.
        """
        order = list(range(len(active)))
        gaps = [index for index in order if self.rows[index].complete]
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
        self.load_weights(policy, 0)

    def load_weights(self, policy: Policy, version: int) -> None:
        """The policy's model is used in place, so new weights only make stale what is kept."""
        self._policy = policy
        self._batch: _Batch | None = None

    def sleep(self) -> None:
        """The cache goes; the weights are the policy's."""
        self._batch = None

    def close(self) -> None:
        self._batch = None

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]) -> list[Sample]:
        """One sample per prompt; see `Engine.generate`."""
        if self._policy.model.training:
            self._policy.model.eval()
        if sampling.stop not in self._stops:
            self._stops[sampling.stop] = Stops(self._policy.tokenizer, sampling.stop)
        capacity = max(len(prompt) for prompt in prompts) + sampling.max_tokens
        batch, self._batch = self._batch, None  # a call that breaks off leaves nothing
        if batch is not None and not batch.go_on(prompts, capacity):
            batch = None
        with self._policy.precision():
            if batch is None:
                batch, hidden, last = self._fresh(prompts, capacity)
            else:
                hidden, last = self._read(batch)
            self._sample(batch, hidden, last, sampling, _uniforms(seeds, sampling.max_tokens))
        self._batch = batch
        return [
            Sample(tuple(row.token_ids), tuple(row.logprobs), row.complete)
            for row in sorted(batch.rows, key=lambda row: row.index)
        ]

    def _fresh(
        self, prompts: Sequence[Sequence[int]], capacity: int
    ) -> tuple[_Batch, Float[Tensor, "row width"], Int[Tensor, " row"]]:
        """A batch of new prompts, and what `_read` returns. A prompt of several rows, such as that of a group, is read
        once.
        """
        distinct = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
        cache = PositionCache(self._policy.model.config.num_hidden_layers, len(distinct), capacity)
        batch = _Batch(
            [_Row(index, list(prompt)) for index, prompt in enumerate(distinct)],
            cache,
            forward_of(self._policy.model, cache),
        )
        hidden, last = self._read(batch)
        place = {prompt: index for index, prompt in enumerate(distinct)}
        places = [place[tuple(prompt)] for prompt in prompts]
        batch.rows = [_Row(index, list(prompt)) for index, prompt in enumerate(prompts)]
        if len(distinct) < len(prompts):
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
                if not row.complete:
                    row.token_ids.append(token)
                    row.logprobs.append(logprob)
                    row.complete = token in stops.candidates and stops.completed(row.token_ids)
            active = [index for index, row in enumerate(rows) if not row.complete]
            if not active or number + 1 == sampling.max_tokens:
                break
            if len(active) <= len(tokens) // 2:  # completed rows are computed along until dropping them is worth it
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
