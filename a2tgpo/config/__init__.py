"""Recipes: every setting of a run, read from and written to TOML."""

from a2tgpo.config.parsing import flat, from_dict
from a2tgpo.config.recipe import (
    VLLM,
    Environment,
    Gain,
    Model,
    Recipe,
    Rollout,
    Study,
    Training,
    Update,
    WarmStart,
    load_recipe,
    recipe_names,
    to_toml,
)
from a2tgpo.errors import ConfigError

__all__ = [
    "VLLM",
    "ConfigError",
    "Environment",
    "Gain",
    "Model",
    "Recipe",
    "Rollout",
    "Study",
    "Training",
    "Update",
    "WarmStart",
    "flat",
    "from_dict",
    "load_recipe",
    "recipe_names",
    "to_toml",
]
