"""The engine that a recipe names."""

from a2tgpo.config import Recipe
from a2tgpo.engines.base import Engine
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.engines.vllm import VLLMEngine, check_installed
from a2tgpo.policy import Policy


def engine_of(recipe: Recipe, policy: Policy) -> Engine:
    """The recipe's engine on this policy.

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
