"""`a2tgpo bench update`: a whole update step beside the bare work on the same tokens, and how it grows with the batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig

from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.batch import collate, tabulate
from a2tgpo.bench import TINY_MODEL, Cost, Shape, bench_episodes, bench_policy, costs_of, machine, megabytes, table
from a2tgpo.config import Update
from a2tgpo.episode import Episode
from a2tgpo.information_gain import measure
from a2tgpo.policy import Policy, micro_batches
from a2tgpo.probes import Scaffold
from a2tgpo.update import Sample, Updater

BARE, TRAINING, STEP = "bare forward + backward + optimiser", "loss + backward + optimiser", "whole step"
SCAFFOLD = Scaffold("t1 ", " t2")


@dataclass(frozen=True, slots=True)
class UpdateBench:
    """Costs per batch size."""

    costs: Mapping[int, Mapping[str, Cost]]
    """Number of episodes -> way -> cost."""
    tokens: Mapping[int, int]
    """Number of episodes -> their tokens."""
    described: str

    def ratio(self, episodes: int, way: str) -> float:
        """Work of that way as a multiple of the bare work."""
        return self.costs[episodes][way].work_seconds / self.costs[episodes][BARE].work_seconds

    def tokens_per_second(self, episodes: int, way: str) -> float:
        return self.tokens[episodes] / self.costs[episodes][way].work_seconds

    def __str__(self) -> str:
        rows = [
            (
                f"{episodes:,} episodes: {way}",
                f"{cost.seconds:.3f} s",
                f"{cost.work_seconds:.3f} s",
                f"{self.ratio(episodes, way):.2f}",
                f"{self.tokens_per_second(episodes, way):,.0f}",
                megabytes(cost.peak_bytes),
            )
            for episodes, ways in self.costs.items()
            for way, cost in ways.items()
        ]
        return "\n".join([self.described, table(("", "time", "work", "of bare", "tokens/s", "peak memory"), rows)])


def bench_update(
    model: Path | LlamaConfig = TINY_MODEL,
    shape: Shape | None = None,
    *,
    sizes: Sequence[int] = (64, 256, 1024),
    micro_batch_tokens: int = 4096,
    mini_batches: int = 4,
    dtype: str = "float32",
    device: str = "cpu",
    repeats: int = 3,
) -> UpdateBench:
    """Measure, for every number of episodes: the bare work, the training part, and the step with its pass for old log-probabilities and information gain.

    The bare work is what nobody can save: forward, cross-entropy on the policy tokens, backward and optimiser on as many tokens, in full rows of the
    mean length.

    Args:
        shape: of the episodes; by default 50 to 100 tokens with 3 searches.
    """
    shape = shape or Shape(tokens=100, searches=3, action_tokens=6, shortest=0.5)
    policy = bench_policy(model, dtype, device)
    settings = Update(learning_rate=1e-9, mini_batches=mini_batches, micro_batch_tokens=micro_batch_tokens)
    costs, tokens = {}, {}
    for size in sizes:
        episodes = bench_episodes(replace(shape, episodes=size), int(policy.model.config.vocab_size))
        costs[size] = costs_of(_ways(policy, episodes, settings), repeats, policy.device)
        tokens[size] = sum(episode.num_tokens for episode in episodes)
    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    described = (
        f"{parameters / 1e6:.2f}M parameters, {dtype}, {device}; episodes of {round(shape.tokens * shape.shortest)} to {shape.tokens} tokens, "
        f"{shape.searches} searches, {mini_batches} mini-batches, micro-batches of {micro_batch_tokens:,} tokens\n{machine()}"
    )
    return UpdateBench(costs, tokens, described)


def _ways(policy: Policy, episodes: list[Episode], settings: Update) -> dict[str, Callable[[], object]]:
    algorithm = ALGORITHMS["a2tgpo"]()
    updater = Updater(policy, settings, algorithm.loss, total_steps=1, seed=0)
    rows, targets = _full_rows(policy, episodes)

    def bare() -> None:
        policy.model.train()
        for chosen in torch.arange(len(rows)).tensor_split(settings.mini_batches):
            updater.optimizer.zero_grad(set_to_none=True)
            for micro in micro_batches([rows.shape[1]] * len(chosen), settings.micro_batch_tokens):
                _bare_backward(policy, rows[chosen[micro]], targets[chosen[micro]])
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), settings.max_grad_norm)
            updater.optimizer.step()
        policy.model.eval()

    def sample() -> Sample:
        measured = measure(policy, episodes, SCAFFOLD, micro_batch_tokens=settings.micro_batch_tokens)
        turns = tabulate(measured.episodes)
        return Sample(collate(episodes, policy.pad_token_id, policy.device), measured.scores.logprobs, turns.group, algorithm(turns))

    ready = sample()
    return {BARE: bare, TRAINING: lambda: updater(ready, 0), STEP: lambda: updater(sample(), 0)}


def _full_rows(policy: Policy, episodes: list[Episode]) -> tuple[Tensor, Tensor]:
    """As many tokens in rows of the mean length, and what is to be predicted: -100 but for the policy tokens. Both [row, token]."""
    width = sum(episode.num_tokens for episode in episodes) // len(episodes)
    ids = [token for episode in episodes for token in episode.token_ids]
    sampled = [flag for episode in episodes for flag in episode.action_mask]
    rows = torch.tensor(ids[: len(episodes) * width], device=policy.device).view(-1, width)
    mask = torch.tensor(sampled[: len(episodes) * width], device=policy.device).view(-1, width)
    return rows, torch.where(mask, rows, -100)


def _bare_backward(policy: Policy, rows: Tensor, targets: Tensor) -> None:
    """The shortest way to a gradient: transformers' own forward, logits where a policy token is predicted, cross-entropy."""
    hidden = policy.model.get_decoder()(input_ids=rows, use_cache=False).last_hidden_state[:, :-1]
    wanted = targets[:, 1:]
    logits = policy.model.get_output_embeddings()(hidden[wanted >= 0]).float()
    F.cross_entropy(logits, wanted[wanted >= 0]).backward()  # type: ignore[no-untyped-call]
