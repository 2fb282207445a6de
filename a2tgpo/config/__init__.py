"""Recipes: every setting of a run, read from and written to TOML."""

from a2tgpo.config.parsing import flat, from_dict
from a2tgpo.config.recipe import (
    EnvironmentSettings,
    GainSettings,
    ModelSettings,
    Recipe,
    RolloutSettings,
    StudySettings,
    TrainingSettings,
    UpdateSettings,
    VLLMSettings,
    WarmStartSettings,
    load_recipe,
    recipe_names,
    to_toml,
)
from a2tgpo.errors import ConfigError

__all__ = [
    "ConfigError",
    "EnvironmentSettings",
    "GainSettings",
    "ModelSettings",
    "Recipe",
    "RolloutSettings",
    "StudySettings",
    "TrainingSettings",
    "UpdateSettings",
    "VLLMSettings",
    "WarmStartSettings",
    "flat",
    "from_dict",
    "load_recipe",
    "recipe_names",
    "to_toml",
]
