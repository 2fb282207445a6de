"""From a recipe to the parts of a run: environments, policy, engine, rollout, algorithm."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import gymnasium
from gymnasium.vector import AutoresetMode

from a2tgpo.algorithms import Algorithm
from a2tgpo.config import Recipe
from a2tgpo.engines import Engine, engine_of
from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.registration import check_id
from a2tgpo.errors import ConfigError
from a2tgpo.information_gain import Scoring
from a2tgpo.policy import Policy
from a2tgpo.policy.load import chat_of, load_policy
from a2tgpo.training.preflight import check_retrieval, usable_questions
from a2tgpo.training.rollout import Rollout

EVALUATED_TOGETHER: Final = 512
"""Episodes of an evaluation that are in flight together at most; a split may have fewer questions than a recipe asks
for.
"""


@dataclass(frozen=True, slots=True)
class Split:
    """The questions of one split that are asked, and the means to play them."""

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
    scoring: Scoring


def build(recipe: Recipe, model_folder: Path) -> Parts:
    """Make the parts of a run whose policy starts from `model_folder`.

    Raises:
        ConfigError: if a part cannot be made from the recipe, or a question can be neither used nor skipped.
        RetrievalError: if a search engine outside of this process does not answer.
    """
    algorithm = recipe.build_algorithm()
    policy = load_policy(recipe.model, model_folder)
    engine = engine_of(recipe, policy)
    train = make_split(
        recipe, policy, engine, recipe.environment.train_split, recipe.rollout.questions * recipe.rollout.group_size
    )
    together = min(recipe.training.evaluate_questions, EVALUATED_TOGETHER)
    validation = make_split(recipe, policy, engine, recipe.environment.validation_split, together)
    scoring = Scoring.of(train.rollout.env.protocol, recipe.information_gain, recipe.update.micro_batch_tokens)
    names = recipe.environment.train_split, recipe.environment.validation_split
    train, validation = (
        _checked(split, name, policy, scoring, recipe) for split, name in zip((train, validation), names, strict=True)
    )
    return Parts(policy, engine, algorithm, train, validation, scoring)


def _checked(split: Split, name: str, policy: Policy, scoring: Scoring, recipe: Recipe) -> Split:
    """The split with the questions that can be used; raises as `check_retrieval` and `usable_questions`."""
    check_retrieval(split.rollout.env)
    kept = usable_questions(split.rollout, policy.tokenizer, scoring, name, recipe.rollout.on_bad_question)
    return replace(split, questions=kept)


def make_split(recipe: Recipe, policy: Policy, engine: Engine, split: str, num_envs: int) -> Split:
    """A vector environment over the questions of a split, with its rollout."""
    env = make_env(recipe, split, num_envs)
    chat = chat_of(recipe.model, policy, env.protocol, env.rules.instructions)
    limits = recipe.rollout
    rollout = Rollout(
        env,
        engine,
        chat,
        max_action_tokens=limits.max_action_tokens,
        max_episode_tokens=min(limits.max_episode_tokens, policy.max_tokens),
        max_response_tokens=limits.max_response_tokens,
        replays=limits.replays,
    )
    return Split(env.questions, rollout)


def make_env(recipe: Recipe, split: str, num_envs: int) -> SearchQAVectorEnv:
    """The recipe's environment as a vector environment that leaves finished episodes alone.

    Raises:
        ConfigError: if the environment cannot be made from the recipe, or is none of this package's.
    """
    check_id(recipe.environment.id)
    env = gymnasium.make_vec(
        recipe.environment.id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        split=split,
        scorer=None,  # the loop scores by the policy itself, all turns at once
        autoreset_mode=AutoresetMode.DISABLED,
        **recipe.environment.arguments(),
    )
    if not isinstance(env, SearchQAVectorEnv):
        raise ConfigError(
            f"environment.id: got {recipe.environment.id!r}, expected one of this package's environments; others have"
            " no gold answers to score"
        )
    return env


def limit_threads(threads: int) -> None:
    """For child processes that are about to import torch: tiny models are slower on two threads than on one."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
