"""Generation with the policy's own transformers model: no second copy of the weights, the KV cache kept between the turns of an episode.

A prompt that continues a row of the previous call reuses that row's cache and only its new tokens are fed; nobody has to say which row it continues.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.engines.base import Sample, Sampling
from a2tgpo.engines.kv_cache import PositionCache
from a2tgpo.engines.stops import Stops
from a2tgpo.policy import Policy


@dataclass
class _Row:
    """A row in the cache: its tokens, of which the first `cached` have keys and values."""

    token_ids: list[int]
    cached: int = 0
    logprobs: list[float] = field(default_factory=list)
    complete: bool = False

    def is_continued_by(self, prompt: Sequence[int]) -> bool:
        return list(prompt[: self.cached]) == self.token_ids[: self.cached]


class TransformersEngine:
    """Engine on the policy's model."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        names = inspect.signature(policy.model.get_decoder().forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"  # renamed in transformers 5.2x
        self._rows: list[_Row] = []
        self._cache = PositionCache(policy.model.config.num_hidden_layers)
        self._stops: dict[tuple[str, ...], Stops] = {}

    def load_weights(self, policy: Policy, version: int) -> None:
        """The policy's model is used in place, so new weights only make the cache stale."""
        self._policy = policy
        self._forget()

    def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._rows = []
        self._cache = PositionCache(self._policy.model.config.num_hidden_layers)

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]) -> list[Sample]:
        """One sample per prompt; see `Engine.generate`."""
        self._policy.model.eval()
        stops = self._stops.setdefault(sampling.stop, Stops(self._policy.tokenizer, sampling.stop))
        capacity = max(len(prompt) for prompt in prompts) + sampling.max_tokens
        self._adopt(prompts, capacity)
        uniforms = _uniforms(seeds, sampling.max_tokens)
        active = list(range(len(prompts)))
        logits = self._feed(active)
        for step in range(sampling.max_tokens):
            tokens, logprobs = _draw(logits, sampling.temperature, uniforms[active, step])
            for index, token, logprob in zip(active, tokens.tolist(), logprobs.tolist(), strict=True):
                row = self._rows[index]
                row.token_ids.append(token)
                row.logprobs.append(logprob)
                row.complete = stops.completed(row.token_ids[len(prompts[index]) :])
            active = [index for index in active if not self._rows[index].complete]
            if not active or step + 1 == sampling.max_tokens:
                break
            logits = self._feed(active)
        return [
            Sample(tuple(row.token_ids[len(prompt) :]), tuple(row.logprobs), row.complete) for row, prompt in zip(self._rows, prompts, strict=True)
        ]

    def _adopt(self, prompts: Sequence[Sequence[int]], capacity: int) -> None:
        """Line the cache up with the prompts: rows that are continued keep their keys and values."""
        kept, rows, cursor = [], [], 0
        for prompt in prompts:
            match = next((index for index in range(cursor, len(self._rows)) if self._rows[index].is_continued_by(prompt)), None)
            if match is None:  # nothing to continue: start the whole batch afresh, since rows arrive in the order of the previous call
                self._forget()
                self._rows = [_Row(list(prompt)) for prompt in prompts]
                self._cache.reserve(None, capacity)
                return
            cached = min(self._rows[match].cached, len(prompt) - 1)  # at least one token must be fed to get logits
            kept.append(match)
            rows.append(_Row(list(prompt), cached))
            cursor = match + 1
        self._rows = rows
        self._cache.reserve(torch.tensor(kept, device=self._policy.device), capacity)

    def _feed(self, active: list[int]) -> Float[Tensor, "row vocabulary"]:
        """Run the tokens that have no keys and values yet; logits after the last token of each active row."""
        few = len(active) <= len(self._rows) // 2  # below that, gathering the active rows' cache costs less than computing the finished rows
        fed = active if few else range(len(self._rows))
        rows = [self._rows[index] for index in fed]
        new = [[] if row.complete else row.token_ids[row.cached :] for row in rows]
        width, device = max(len(ids) for ids in new), self._policy.device
        token_ids = torch.tensor([ids + [0] * (width - len(ids)) for ids in new], device=device)
        lengths = torch.tensor([len(ids) for ids in new], device=device)
        offsets = torch.arange(width, device=device)
        positions = torch.tensor([row.cached for row in rows], device=device)[:, None] + offsets
        mask = self._cache.place(torch.tensor(active, device=device) if few else None, positions, offsets < lengths[:, None])
        output = self._policy.model.get_decoder()(
            input_ids=token_ids, attention_mask=mask, position_ids=positions, use_cache=True, **{self._cache_argument: self._cache.model_cache}
        )
        for row, ids in zip(rows, new, strict=True):
            row.cached += len(ids)
        last = (lengths > 0).nonzero().squeeze(1)
        hidden = output.last_hidden_state[last, lengths[last] - 1]
        logits: Tensor = self._policy.model.get_output_embeddings()(hidden).float()
        return logits


def _uniforms(seeds: Sequence[int], count: int) -> Float[np.ndarray, "row step"]:
    """One stream of uniform numbers per row, from the row's own seed alone."""
    return np.stack([np.random.Generator(np.random.Philox(seed)).random(count) for seed in seeds])


def _draw(
    logits: Float[Tensor, "row vocabulary"], temperature: float, uniform: Float[np.ndarray, " row"]
) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
    """Draw by inverting the cumulative distribution at `uniform`: the token depends on the row's own numbers only."""
    logprobs = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        target = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)
