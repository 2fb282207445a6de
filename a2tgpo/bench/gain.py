"""`a2tgpo bench information-gain`: what the probes cost, beside the usual ways to get the same numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig

from a2tgpo.batch import TokenBatch, collate
from a2tgpo.bench import (
    LLAMA_135M,
    Cost,
    Shape,
    bench_episodes,
    bench_policy,
    costs_of,
    machine,
    megabytes,
    verdict,
)
from a2tgpo.display.tables import as_text, table
from a2tgpo.episode import Episode
from a2tgpo.information_gain.cuts import observation_cuts
from a2tgpo.information_gain.probe_pass import Attention, PassResult, pass_with_probes
from a2tgpo.information_gain.probes import ScoredText, probe_tree
from a2tgpo.policy import Policy

PLAIN, PROBES, PADDED, PACKED = (
    "old log-probabilities",
    "the same with probes",
    "padded pass per cut",
    "packed extra pass",
)
MOST_TIME, MOST_TOKENS, MOST_MEMORY, LEAST_CHEAPER = 0.05, 0.04, 0.10, 20
"""Targets: what the probes may add to the plain pass, and how many times the padded passes must cost what the probes
add.
"""
PAIRS = 5
"""Rounds of the plain pass and of that with probes alone, for every round of all ways: a few percent need more rounds
than a multiple of five.
"""


@dataclass(frozen=True, slots=True)
class GainBench:
    """Costs of the four ways for one model and episode shape."""

    costs: Mapping[str, Cost]
    """Of all ways."""
    pair: Mapping[str, Cost]
    """Of the plain pass and of that with probes, from rounds of these two alone."""
    episode_tokens: int
    probe_tokens: int
    difference: float
    """Largest difference between the gold values of the one pass and of the padded passes, in nats."""
    described: str

    @property
    def token_share(self) -> float:
        """Tokens that the probes add, as a share of the episodes'."""
        return self.probe_tokens / self.episode_tokens

    @property
    def time_share(self) -> float:
        """Work that the probes add, as a share of the plain pass's."""
        return self.pair[PROBES].times(self.pair[PLAIN]) - 1

    @property
    def memory_share(self) -> float | None:
        """Peak memory that the probes add, as a share of the plain pass."""
        plain, probes = self.costs[PLAIN].peak_bytes, self.costs[PROBES].peak_bytes
        return probes / plain - 1 if plain and probes else None

    @property
    def cheaper(self) -> float:
        """How many times the padded passes' time the probes' added time fits in."""
        return self.costs[PADDED].times(self.costs[PLAIN]) / self.time_share if self.time_share > 0 else float("inf")

    def __str__(self) -> str:
        plain = self.costs[PLAIN]
        rows = [
            (
                name,
                f"{cost.seconds:.3f} s",
                f"{cost.work_seconds:.3f} s",
                f"{cost.times(plain):.2f}",
                megabytes(cost.peak_bytes),
            )
            for name, cost in self.costs.items()
        ]
        low, high = (multiple - 1 for multiple in self.pair[PROBES].times_range(self.pair[PLAIN]))
        rounds = len(self.pair[PLAIN].work)
        memory = self.memory_share
        return "\n".join(
            [
                self.described,
                as_text(table(("way", "time", "work", "of plain", "peak memory"), rows)),
                (
                    f"the probes add {self.token_share:.1%} tokens, target {MOST_TOKENS:.0%},"
                    f" {verdict(self.token_share <= MOST_TOKENS)}"
                ),
                (
                    f"they add {self.time_share:+.1%} work ({low:+.1%} to {high:+.1%}, middle of {rounds} rounds of"
                    f" these two), target {MOST_TIME:.0%}, {verdict(self.time_share <= MOST_TIME)}"
                ),
                (
                    f"the padded passes cost {self.cheaper:,.0f} times as much, target {LEAST_CHEAPER},"
                    f" {verdict(self.cheaper >= LEAST_CHEAPER)}"
                ),
                *(
                    []
                    if memory is None
                    else [
                        f"they add {memory:+.1%} peak memory, target {MOST_MEMORY:.0%},"
                        f" {verdict(memory <= MOST_MEMORY)}"
                    ]
                ),
                f"gold values of the one pass and of the padded passes differ by at most {self.difference:.1e} nats",
            ]
        )


def bench_information_gain(
    model: Path | LlamaConfig = LLAMA_135M,
    shape: Shape | None = None,
    *,
    scaffold_tokens: int = 1,
    attention: Attention = "sdpa",
    dtype: str = "float32",
    device: str = "cpu",
    repeats: int = 5,
) -> GainBench:
    """Measure all four ways in one run: first the plain pass beside that with probes, `PAIRS` × `repeats` rounds, then
    all ways, `repeats` rounds.

    Args:
        model: a model folder, or the shape of one with random weights; by default a Llama-type model of 135 million
            parameters.
        scaffold_tokens: tokens between a cut and the gold answer; 1 is a protocol that opens an answer with one token.
    """
    shape = shape or Shape()
    policy = bench_policy(model, dtype, device)
    vocabulary = int(policy.model.config.vocab_size)
    episodes = bench_episodes(shape, vocabulary)
    text = torch.randint(
        vocabulary, (scaffold_tokens + shape.gold_tokens,), generator=torch.Generator().manual_seed(1)
    ).tolist()
    probe = probe_tree([ScoredText(tuple(text), scaffold_tokens)])
    batch = collate(episodes, policy.pad_token_id, policy.device)
    cuts = [list(observation_cuts(episode).positions.values()) for episode in episodes]
    nothing = TokenBatch(batch.token_ids, batch.attention_mask, torch.full_like(batch.turn, -1), batch.sampler_logprobs)

    def packed(tokens: TokenBatch) -> PassResult:
        return pass_with_probes(policy, tokens, cuts, [probe] * len(cuts), attention=attention)

    pair: dict[str, Callable[[], object]] = {PLAIN: lambda: policy.token_logprobs(batch), PROBES: lambda: packed(batch)}
    others = {
        PADDED: lambda: padded_passes(policy, episodes, cuts, text, shape.gold_tokens),
        PACKED: lambda: packed(nothing),
    }
    with torch.no_grad():
        pair_costs = costs_of(pair, PAIRS * repeats, policy.device)
        costs = costs_of(pair | others, repeats, policy.device)
        result, padded = packed(batch), padded_passes(policy, episodes, cuts, text, shape.gold_tokens)
    difference = max(
        float(abs(gold[:, 0] - values.numpy()).max()) for gold, values in zip(result.gold_logprobs, padded, strict=True)
    )
    size = sum(parameter.numel() for parameter in policy.model.parameters())
    described = (
        f"{size / 1e6:.0f}M parameters, {dtype}, {device}; {shape.episodes} episode(s) of {shape.tokens} tokens,"
        f" {shape.searches} searches, gold of {shape.gold_tokens} tokens behind {scaffold_tokens} scaffold token(s),"
        f" {attention}\n{machine()}"
    )
    return GainBench(
        costs, pair_costs, sum(episode.num_tokens for episode in episodes), result.probe_tokens, difference, described
    )


def padded_passes(
    policy: Policy, episodes: list[Episode], cuts: list[list[int]], text: list[int], gold_tokens: int
) -> list[torch.Tensor]:
    """The usual way: for the k-th cut of all episodes one pass over prefix + scaffold + gold, every pass padded to the
    longest row of all. Per row [cut].
    """
    width = max(episode.num_tokens for episode in episodes) + len(text)
    values: list[list[torch.Tensor]] = [[] for _ in episodes]
    for number in range(max(len(row) for row in cuts)):
        token_ids = torch.full((len(episodes), width), policy.pad_token_id)
        turn = torch.full((len(episodes), width), -1)
        for row, (episode, places) in enumerate(zip(episodes, cuts, strict=True)):
            cut = places[min(number, len(places) - 1)]
            token_ids[row, : cut + len(text)] = torch.tensor([*episode.token_ids[:cut], *text])
            turn[row, cut + len(text) - gold_tokens : cut + len(text)] = 0
        everything = torch.ones(token_ids.shape, dtype=torch.bool)
        batch = TokenBatch(
            *(value.to(policy.device) for value in (token_ids, everything, turn, torch.zeros(token_ids.shape)))
        )
        sums = policy.token_logprobs(batch, entropy="skip").logprobs.double().sum(dim=1).cpu()
        for row, places in enumerate(cuts):
            if number < len(places):
                values[row].append(sums[row] / gold_tokens)
    return [torch.stack(row) for row in values]
