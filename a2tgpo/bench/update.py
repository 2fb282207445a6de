"""`a2tgpo bench update`: a whole update step beside the bare work on the same tokens, and how it grows with the
batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.bench import (
    TINY_MODEL,
    Cost,
    Shape,
    bench_episodes,
    bench_policy,
    costs_of,
    machine,
    megabytes,
    verdict,
)
from a2tgpo.config import UpdateSettings
from a2tgpo.display.tables import as_text, table
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError
from a2tgpo.information_gain import Scaffold, Scoring
from a2tgpo.policy import Policy
from a2tgpo.training.score import TrainingBatch, score_batch
from a2tgpo.training.update import Updater

BARE, TRAINING, STEP = "bare forward + backward + optimiser", "loss + backward + optimiser", "whole step"
TARGETS = {TRAINING: 1.10, STEP: 1.45}
"""What a way may cost at most, as a multiple of the bare work. The step's pass without gradient alone costs a third of
it.
"""
STEADY = 0.10
"""By how much tokens/s may differ between batch sizes."""
SCAFFOLD = Scaffold("t1 ", " t2")

SEARCH_AGENT = Shape(tokens=1024, searches=4, action_tokens=32, shortest=0.5)
"""Real passages and thoughts in words: several hundred tokens, a gold answer of some. The published runs' episodes are
longer still.
"""
EMBEDDED_WORLD = Shape(tokens=90, searches=3, action_tokens=4, shortest=0.5, gold_tokens=1)
"""What the quickstart plays: about 65 tokens, names of one or two, a scaffold of one."""
SHAPES: Mapping[str, Shape] = {"search-agent": SEARCH_AGENT, "embedded-world": EMBEDDED_WORLD}


@dataclass(frozen=True, slots=True)
class UpdateBench:
    """Costs per batch size, for episodes of one shape."""

    costs: Mapping[tuple[int, str], Cost]
    """(Number of episodes, way) -> cost."""
    tokens: Mapping[int, int]
    """Number of episodes -> their tokens."""
    described: str

    def ratio(self, episodes: int, way: str) -> float:
        """Work of that way as a multiple of the bare work."""
        return self.costs[episodes, way].times(self.costs[episodes, BARE])

    @property
    def spread(self) -> float:
        """By how much the whole step's tokens/s differ between the batch sizes, as a share of the lowest."""
        speeds = [self.tokens[size] / self.costs[size, STEP].work_seconds for size in self.tokens]
        return max(speeds) / min(speeds) - 1

    @property
    def noise(self) -> float:
        """By how much the same work took longer in one round than in another, at most: what the machine adds to all
        figures.
        """
        return max(max(cost.work) / min(cost.work) for cost in self.costs.values()) - 1

    def __str__(self) -> str:
        rows = [
            (
                f"{episodes:,} episodes: {way}",
                f"{cost.seconds:.3f} s",
                f"{cost.work_seconds:.3f} s",
                f"{self.ratio(episodes, way):.2f}",
                f"{self.tokens[episodes] / cost.work_seconds:,.0f}",
                megabytes(cost.peak_bytes),
            )
            for (episodes, way), cost in self.costs.items()
        ]
        largest = {way: max(self.ratio(episodes, way) for episodes in self.tokens) for way in TARGETS}
        verdicts = [
            f"{way}: at most {largest[way]:.2f} of bare, target {most:.2f}, {verdict(largest[way] <= most)}"
            for way, most in TARGETS.items()
        ]
        if len(self.tokens) > 1:
            verdicts.append(
                f"tokens/s of the whole step: {self.spread:.0%} apart, target {STEADY:.0%},"
                f" {verdict(self.spread <= STEADY)}"
            )
        noise = f"rounds of the same work: up to {self.noise:.0%} apart" + (
            "; run it again on a quieter machine" if self.noise > STEADY else ""
        )
        return "\n".join(
            [
                self.described,
                as_text(table(("", "time", "work", "of bare", "tokens/s", "peak memory"), rows)),
                *verdicts,
                noise,
            ]
        )


def bench_update(
    model: Path | LlamaConfig = TINY_MODEL,
    shape: Shape = SEARCH_AGENT,
    *,
    sizes: Sequence[int] = (64, 256, 1024),
    micro_batch_tokens: int = 4096,
    mini_batches: int = 4,
    dtype: str = "float32",
    device: str = "cpu",
    repeats: int = 2,
) -> UpdateBench:
    """Measure, for every number of episodes: the bare work, the training part, and the step with its pass for old
    log-probabilities and information gain.

    The bare work is what nobody can save: forward, cross-entropy on the policy tokens, backward and optimiser on as
    many tokens in rows of the same lengths, without padding, in as few passes as the micro-batches allow.

    Args:
        shape: of the episodes.
        sizes: numbers of episodes, a cheap one first: it warms up for all.
        repeats: rounds over all sizes. Within each, small sizes take several of their own, up to a quarter of the
            largest size's work.

    Raises:
        ConfigError: if a size leaves a group of one episode, or for an unknown dtype or device.
    """
    if lonely := [size for size in sizes if size % 8 == 1]:
        raise ConfigError(
            f"bench.sizes: got {lonely}, expected groups of eight and a rest of at least two; a group of one trains"
            " nothing"
        )
    policy = bench_policy(model, dtype, device)
    settings = UpdateSettings(learning_rate=1e-9, mini_batches=mini_batches, micro_batch_tokens=micro_batch_tokens)
    batches = {
        size: bench_episodes(replace(shape, episodes=size), int(policy.model.config.vocab_size)) for size in sizes
    }
    ways = {size: _ways(policy, episodes, settings) for size, episodes in batches.items()}
    for way in ways[sizes[0]].values():
        way()
    costs: dict[tuple[int, str], Cost] = {}
    for _ in range(repeats):
        for size in sizes:
            rounds = costs_of(ways[size], max(1, max(sizes) // (4 * size)), policy.device, warm_up=False)
            costs |= {
                (size, name): costs[size, name] + cost if (size, name) in costs else cost
                for name, cost in rounds.items()
            }
    tokens = {size: sum(episode.num_tokens for episode in episodes) for size, episodes in batches.items()}
    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    described = (
        f"{parameters / 1e6:.2f}M parameters, {dtype}, {device}; episodes of {round(shape.tokens * shape.shortest)} to"
        f" {shape.tokens} tokens, {shape.searches} searches, gold of {shape.gold_tokens}; up to {mini_batches}"
        f" mini-batches, micro-batches of {micro_batch_tokens:,} tokens\n{machine()}"
    )
    return UpdateBench(costs, tokens, described)


def _ways(policy: Policy, episodes: list[Episode], settings: UpdateSettings) -> dict[str, Callable[[], object]]:
    algorithm = ALGORITHMS["a2tgpo"]()
    updater = Updater(policy, settings, algorithm.loss, total_steps=1, seed=0)
    scoring = Scoring(SCAFFOLD, micro_batch_tokens=settings.micro_batch_tokens)
    ordered = sorted(episodes, key=lambda episode: -episode.num_tokens)
    # as in the update, where a mini-batch holds whole groups
    count = min(settings.mini_batches, len({episode.group for episode in episodes}))
    mini_batches = [_full_rows(policy, ordered[start::count], settings.micro_batch_tokens) for start in range(count)]

    def bare() -> None:
        policy.model.train()
        for passes in mini_batches:
            updater.optimizer.zero_grad(set_to_none=True)
            for rows, targets in passes:
                _bare_backward(policy, rows, targets)
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), settings.max_grad_norm)
            updater.optimizer.step()
        policy.model.eval()

    def sample() -> TrainingBatch:
        return score_batch(policy, episodes, scoring, algorithm).training

    ready = sample()
    return {BARE: bare, TRAINING: lambda: updater(ready, 0), STEP: lambda: updater(sample(), 0)}


def _full_rows(policy: Policy, episodes: list[Episode], micro_batch_tokens: int) -> list[tuple[Tensor, Tensor]]:
    """Per pass: token ids, and what is to be predicted (-100 but for the policy tokens), both [row token].

    Passes take the episodes in their order until the budget is full, and cut their tokens into as many rows of equal
    length.
    """
    passes: list[list[Episode]] = [[]]
    for episode in episodes:
        if passes[-1] and sum(other.num_tokens for other in passes[-1]) + episode.num_tokens > micro_batch_tokens:
            passes.append([])
        passes[-1].append(episode)
    result = []
    for chosen in passes:
        width = sum(episode.num_tokens for episode in chosen) // len(chosen)
        places = len(chosen) * width
        rows = torch.tensor(
            [token for episode in chosen for token in episode.token_ids][:places], device=policy.device
        ).view(-1, width)
        sampled = torch.tensor(
            [flag for episode in chosen for flag in episode.action_mask][:places], device=policy.device
        ).view(-1, width)
        result.append((rows, torch.where(sampled, rows, -100)))
    return result


def _bare_backward(policy: Policy, rows: Tensor, targets: Tensor) -> None:
    """The shortest way to a gradient: transformers' own forward, logits where a policy token is predicted,
    cross-entropy.
    """
    with policy.precision():
        hidden = policy.model.get_decoder()(input_ids=rows, use_cache=False).last_hidden_state[:, :-1]
        wanted = targets[:, 1:]
        logits = policy.model.get_output_embeddings()(hidden[wanted >= 0])
    F.cross_entropy(logits.float(), wanted[wanted >= 0]).backward()  # type: ignore[no-untyped-call]
