"""From a recipe to the parts of a run: environments, policy, engine, rollout, algorithm."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

import a2tgpo.envs
from a2tgpo.algorithms import Algorithm
from a2tgpo.algorithms.loader import make_algorithm
from a2tgpo.config import EnvironmentSettings, Recipe
from a2tgpo.engines.base import Engine
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.engines.vllm import VLLMEngine, check_installed
from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.data.corpus import corpus_fingerprint
from a2tgpo.errors import ConfigError
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Rollout

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
    scaffold: Scaffold


def build(recipe: Recipe, model_folder: Path) -> Parts:
    """Make the parts of a run whose policy starts from `model_folder`.

    Raises:
        ConfigError: if a part cannot be made from the recipe.
    """
    torch.set_num_threads(recipe.model.threads)
    algorithm = make_algorithm(recipe.algorithm, nested(recipe.algorithm_options))
    policy = Policy.load(model_folder, dtype=_DTYPES[recipe.model.dtype], device=recipe.model.device)
    engine = make_engine(recipe, policy)
    train = make_split(
        recipe, policy, engine, recipe.environment.train_split, recipe.rollout.questions * recipe.rollout.group_size
    )
    validation = make_split(
        recipe, policy, engine, recipe.environment.validation_split, recipe.training.evaluate_questions
    )
    return Parts(policy, engine, algorithm, train, validation, Scaffold(*train.rollout.env.protocol.scaffold))


def build_split(recipe: Recipe, model_folder: Path, split: str, num_envs: int) -> Split:
    """A model and the means to play one split with it, without anything that only training needs."""
    torch.set_num_threads(recipe.model.threads)
    policy = Policy.load(model_folder, dtype=_DTYPES[recipe.model.dtype], device=recipe.model.device)
    return make_split(recipe, policy, make_engine(recipe, policy), split, num_envs)


def make_engine(recipe: Recipe, policy: Policy) -> Engine:
    """The engine that the recipe names.

    Raises:
        ConfigError: if it cannot be started.
    """
    if recipe.model.engine == "vllm":
        return VLLMEngine(policy, recipe.vllm, min(recipe.rollout.max_episode_tokens, policy.max_tokens))
    return TransformersEngine(policy)


def check_engine(recipe: Recipe) -> None:
    """Raise ConfigError if the recipe's engine is not installed, before anything else takes time."""
    if recipe.model.engine == "vllm":
        check_installed()


def make_split(recipe: Recipe, policy: Policy, engine: Engine, split: str, num_envs: int) -> Split:
    """A vector environment over the questions of a split, with its rollout."""
    env = make_env(recipe, split, num_envs)
    chat = Chat(policy.tokenizer, recipe.model.chat_template, tool_role=env.protocol.observation_role == "tool")
    limits = recipe.rollout
    rollout = Rollout(
        env,
        engine,
        chat,
        max_action_tokens=limits.max_action_tokens,
        max_episode_tokens=min(limits.max_episode_tokens, policy.max_tokens),
    )
    return Split(env.questions, rollout)


def make_env(recipe: Recipe, split: str, num_envs: int) -> SearchQAVectorEnv:
    """The recipe's environment as a vector environment that leaves finished episodes alone.

    Raises:
        ConfigError: if the environment cannot be made from the recipe, or is none of this package's.
    """
    a2tgpo.envs.register_envs()
    env = gymnasium.make_vec(
        recipe.environment.id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        split=split,
        scorer=None,  # the loop scores by the policy itself, all turns at once
        autoreset_mode=AutoresetMode.DISABLED,
        **env_arguments(recipe.environment),
    )
    if not isinstance(env, SearchQAVectorEnv):
        raise ConfigError(
            f"environment.id: got {recipe.environment.id!r}, expected one of this package's environments; others have"
            " no golds to score"
        )
    return env


def env_arguments(settings: EnvironmentSettings) -> dict[str, Any]:
    """What the environment's constructor takes of the recipe."""
    shared = {
        name: getattr(settings, name)
        for name in ("top_k", "max_searches", "max_turns", "protocol", "reward", "retriever")
    }
    if settings.id == "a2tgpo/Almanac-v0":
        return shared | {
            "fictional": settings.fictional,
            "worlds": settings.worlds,
            "seed": settings.world_seed,
            "hops": settings.hops,
        }
    return shared | {name: value for name in ("dataset", "corpus") if (value := getattr(settings, name))}


def nested(options: Mapping[str, object]) -> dict[str, object]:
    """Algorithm options as the algorithm takes them: `loss.clip_low` becomes an entry of `loss`."""
    plain = {name: value for name, value in options.items() if not name.startswith("loss.")}
    changes = {name.removeprefix("loss."): value for name, value in options.items() if name.startswith("loss.")}
    return plain | ({"loss": changes} if changes else {})


class QuestionStream:
    """An endless, seeded order of questions: the same for every algorithm of a study that shares the seed, and a pure
    function of (seed, step).
    """

    def __init__(self, questions: tuple[Question, ...], per_step: int, seed: int) -> None:
        if len(questions) < per_step:
            raise ConfigError(
                f"rollout.questions: got {per_step}, but the split has only {len(questions)} questions; lower it or use"
                " a larger split"
            )
        self._questions, self._per_step, self._seed = questions, per_step, seed

    def at(self, step: int) -> list[Question]:
        """The questions of a step, all different."""
        per_epoch = len(self._questions) // self._per_step
        epoch, place = divmod(step, per_epoch)
        return self._slice(np.random.default_rng((self._seed, epoch)), place)

    def spare(self, step: int, attempt: int) -> list[Question]:
        """Other questions for a step, to replace those that taught nothing; drawn beside the stream, which goes on
        unchanged.
        """
        return self._slice(np.random.default_rng((self._seed, step, attempt)), 0)

    def _slice(self, rng: np.random.Generator, place: int) -> list[Question]:
        order = rng.permutation(len(self._questions))[place * self._per_step : (place + 1) * self._per_step]
        return [self._questions[index] for index in order]


def corpus_hash(env: SearchQAVectorEnv) -> str:
    """One hash over everything that can be retrieved."""
    digest = hashlib.sha256()
    for passages in env.pool.corpora():
        digest.update(corpus_fingerprint(passages).encode())
    return digest.hexdigest()


def limit_threads(threads: int) -> None:
    """For child processes that are about to import torch: tiny models are slower on two threads than on one."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
