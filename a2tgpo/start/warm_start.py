"""The supervised start: next-token training on scripted demonstrations until the policy solves some questions, but far
from all.

Reinforcement learning needs a policy that sometimes succeeds. What ends the warm start is therefore a score on held-out
questions, not a number of steps: how fast the ability to copy a name forms differs much between seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional as F

from a2tgpo import config
from a2tgpo.config import Recipe
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.envs.almanac import DRAWN_RELATIONS, HABITS, RELATIONS, ErrorModel
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.start.demonstrations import Demonstration, demonstrate
from a2tgpo.training.evaluate import evaluate
from a2tgpo.training.parts import Split, make_split
from a2tgpo.training.questions import fixed_subset

OBSERVATION_WEIGHT = 0.3
"""Weight of a token that the environment wrote, against 1 for the expert's: passages cannot be predicted in full, but
heads that copy form sooner on them.
"""
WARMUP_STEPS = 50
LAST_RATE = 0.05
"""The learning rate decays linearly to this share of its peak at `max_steps`."""
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.98)
POOL = 16
"""Batches are cut from pools of so many batches sorted by length, so that little is padding."""
SIDE_BY_SIDE = 256
"""Demonstrations and evaluation episodes played at the same time."""

Progress = Callable[[int, Mapping[str, float]], None]
"""Called with the optimiser step and the metrics after every evaluation."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a warm start led to."""

    steps: int
    sampled: float
    """Share of held-out questions answered correctly when sampling at temperature 1: what reinforcement learning starts
    from.
    """
    greedy: float
    """The same with the most likely token each time; it can be far from the sampled share."""
    loss: float
    """Mean cross-entropy of the expert's tokens over the last interval, in nats."""
    demonstrations_correct: float
    """Share of the demonstrations that end with the right answer."""


def warm_start(policy: Policy, recipe: Recipe, on_progress: Progress = lambda step, metrics: None) -> Warmed:
    """Train `policy` in place on demonstrations over the recipe's training questions; deterministic given
    `recipe.warm_start.seed`.

    Raises:
        ConfigError: if the target is not reached within `warm_start.max_steps`.
    """
    settings = recipe.warm_start
    demonstrations = make_demonstrations(policy, recipe)
    correct = sum(demonstration.outcome for demonstration in demonstrations) / len(demonstrations)
    engine = TransformersEngine(policy)
    held_out = make_split(recipe, policy, engine, recipe.environment.validation_split, SIDE_BY_SIDE)
    trainer = _Trainer(policy, settings, demonstrations)
    sampled, loss = 0.0, float("nan")
    for step in range(1, settings.max_steps + 1):
        trainer.update()
        if step % settings.evaluate_every and step < settings.max_steps:
            continue
        loss = trainer.mean_loss()
        engine.load_weights(policy, version=step)
        sampled = success(held_out, settings, temperature=1.0)
        on_progress(step, {"loss": loss, "sampled": sampled, "target": settings.target_success})
        if sampled >= settings.target_success:
            policy.model.eval()
            return Warmed(step, sampled, success(held_out, settings, temperature=0.0), loss, correct)
    raise ConfigError(
        f"warm_start.target_success: got {sampled:.1%} sampled success after warm_start.max_steps ="
        f" {settings.max_steps} steps (loss {loss:.3f}), expected {settings.target_success:.0%}; raise max_steps or"
        " demonstrations, try another warm_start.seed, or lower the target"
    )


def make_demonstrations(policy: Policy, recipe: Recipe) -> list[Demonstration]:
    """The recipe's demonstrations: as many as it asks for, over training questions in a seeded order, each question
    again only when all have been shown.
    """
    settings = recipe.warm_start
    split = make_split(recipe, policy, TransformersEngine(policy), recipe.environment.train_split, SIDE_BY_SIDE)
    rng = Random(f"demonstrations {settings.seed}")
    order = [
        question
        for _ in range(-(-settings.demonstrations // len(split.questions)))
        for question in rng.sample(split.questions, len(split.questions))
    ]
    relations = DRAWN_RELATIONS if recipe.environment.fictional and recipe.environment.worlds > 1 else tuple(RELATIONS)
    errors = ErrorModel.uniform(settings.mistakes, habits=HABITS, habit=settings.habit)
    chat: Chat = split.rollout.chat
    return demonstrate(split.rollout.env, chat, order[: settings.demonstrations], relations, errors, settings.seed)


def success(split: Split, settings: config.WarmStartSettings, temperature: float) -> float:
    """Share of correct answers on the warm start's fixed held-out questions."""
    questions = fixed_subset(split.questions, settings.evaluate_questions, seed=settings.seed)
    return evaluate(split.rollout, questions, seed=settings.seed, temperature=temperature).metrics["em"]


class _Trainer:
    """Next-token training on demonstrations."""

    def __init__(
        self, policy: Policy, settings: config.WarmStartSettings, demonstrations: Sequence[Demonstration]
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=settings.learning_rate, betas=BETAS, weight_decay=0.01
        )
        self.batches = _batches(demonstrations, settings.batch_size, Random(f"batches {settings.seed}"))
        self.step = 0
        self._losses: list[Tensor] = []

    def update(self) -> None:
        """One optimiser step on the next batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self._rate()
        self.policy.model.train()
        loss, action_loss = self._loss(next(self.batches))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self._losses.append(action_loss)
        self.step += 1

    def mean_loss(self) -> float:
        """Mean loss of the expert's tokens since the last call, in nats."""
        mean = float(torch.stack(self._losses).mean())
        self._losses = []
        return mean

    def _rate(self) -> float:
        return min(1.0, (self.step + 1) / WARMUP_STEPS) * max(LAST_RATE, 1 - self.step / self.settings.max_steps)

    def _loss(self, batch: Sequence[Demonstration]) -> tuple[Tensor, Tensor]:
        """Weighted mean cross-entropy over all tokens, and the plain mean over the expert's."""
        length = max(len(row.token_ids) for row in batch)
        device, pad = self.policy.device, self.policy.pad_token_id
        token_ids = torch.tensor(
            [[*row.token_ids, *[pad] * (length - len(row.token_ids))] for row in batch], device=device
        )
        weight = torch.tensor(
            [[*_weights(row), *[0.0] * (length - len(row.token_ids))] for row in batch], device=device
        )[:, 1:]
        logits = self.policy.model(input_ids=token_ids, use_cache=False).logits[:, :-1].float()
        cross_entropy = F.cross_entropy(logits.transpose(1, 2), token_ids[:, 1:], reduction="none")
        expert = weight == 1.0
        return (cross_entropy * weight).sum() / weight.sum(), cross_entropy.detach()[expert].mean()


def _weights(row: Demonstration) -> list[float]:
    return [1.0 if written else OBSERVATION_WEIGHT for written in row.action_mask]


def _batches(demonstrations: Sequence[Demonstration], size: int, rng: Random) -> Iterator[list[Demonstration]]:
    """Endless batches of similar length; every demonstration once before any comes again."""
    while True:
        order = rng.sample(demonstrations, len(demonstrations))
        pools = [
            sorted(order[start : start + size * POOL], key=lambda row: len(row.token_ids))
            for start in range(0, len(order), size * POOL)
        ]
        batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
        yield from rng.sample(batches, len(batches))
