"""From a recipe to the parts of a run: environments, policy, engine, rollout, algorithm."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

import a2tgpo.envs
from a2tgpo.algorithms import Algorithm, make_algorithm
from a2tgpo.chat import Chat
from a2tgpo.config import ConfigError, Recipe
from a2tgpo.engines.base import Engine
from a2tgpo.envs.records import Question
from a2tgpo.policy import Policy
from a2tgpo.rollout import Rollout

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Split:
    """The questions of one split and the means to play them."""

    questions: tuple[Question, ...]
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a training loop needs."""

    policy: Policy
    engine: Engine
    algorithm: Algorithm
    train: Split
    validation: Split
    scaffold: tuple[str, str]


def build(recipe: Recipe, model_folder: Path) -> Parts:
    """Make the parts of a run whose policy starts from `model_folder`.

    Raises:
        ConfigError: if a part cannot be made from the recipe.
    """
    torch.set_num_threads(recipe.model.threads)
    algorithm = make_algorithm(recipe.algorithm, recipe.algorithm_options)
    policy = Policy.load(model_folder, dtype=_DTYPES[recipe.model.dtype], device=recipe.model.device)
    engine = make_engine(recipe, policy)
    train = make_split(recipe, policy, engine, recipe.environment.train_split, recipe.rollout.questions * recipe.rollout.group_size)
    validation = make_split(recipe, policy, engine, recipe.environment.validation_split, recipe.training.evaluate_questions)
    return Parts(policy, engine, algorithm, train, validation, train.rollout.protocol.scaffold)


def make_engine(recipe: Recipe, policy: Policy) -> Engine:
    """The engine that the recipe names."""
    if recipe.model.engine == "vllm":
        raise ConfigError("model.engine: got 'vllm', which this version does not have yet; use 'transformers'")
    from a2tgpo.engines.transformers import TransformersEngine

    return TransformersEngine(policy)


def make_split(recipe: Recipe, policy: Policy, engine: Engine, split: str, num_envs: int) -> Split:
    """A vector environment over the questions of a split, with its rollout."""
    env = make_env(recipe, split, num_envs)
    questions: tuple[Question, ...] = tuple(env.questions)  # type: ignore[attr-defined]
    protocol = env.protocol  # type: ignore[attr-defined]
    chat = Chat(policy.tokenizer, recipe.model.chat_template, tool_role=protocol.observation_role == "tool")
    limits = recipe.rollout
    rollout = Rollout(env, engine, chat, max_action_tokens=limits.max_action_tokens, max_episode_tokens=min(limits.max_episode_tokens, policy.max_tokens))
    return Split(questions, rollout)


def make_env(recipe: Recipe, split: str, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """The recipe's environment as a vector environment that leaves finished episodes alone."""
    a2tgpo.envs.register_envs()
    settings = recipe.environment
    shared = {name: getattr(settings, name) for name in ("top_k", "max_searches", "max_turns", "protocol", "reward", "retriever")}
    own = (
        {"fictional": settings.fictional, "worlds": settings.worlds, "seed": settings.world_seed}
        if settings.id == "a2tgpo/Almanac-v0"
        else {name: value for name in ("dataset", "corpus") if (value := getattr(settings, name))}
    )
    return gymnasium.make_vec(
        settings.id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        split=split,
        scorer=None,  # the loop scores by the policy itself, all turns at once
        autoreset_mode=AutoresetMode.DISABLED,
        **shared,
        **own,
    )


class QuestionStream:
    """An endless, seeded order of questions: the same for every algorithm of a study that shares the seed, and a pure function of (seed, step)."""

    def __init__(self, questions: tuple[Question, ...], per_step: int, seed: int) -> None:
        if len(questions) < per_step:
            raise ConfigError(f"rollout.questions: got {per_step}, but the split has only {len(questions)} questions; lower it or use a larger split")
        self._questions, self._per_step, self._seed = questions, per_step, seed

    def at(self, step: int) -> list[Question]:
        """The questions of a step, all different."""
        per_epoch = len(self._questions) // self._per_step
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._questions))
        return [self._questions[index] for index in order[place * self._per_step : (place + 1) * self._per_step]]


def limit_threads(threads: int) -> None:
    """For child processes that are about to import torch: tiny models are slower on two threads than on one."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
