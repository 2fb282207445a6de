"""Recipes: every setting of a run, read from and written to TOML."""

from a2tgpo.config.parsing import flat, from_dict
from a2tgpo.config.recipe import Recipe, load_recipe, recipe_names, to_toml
from a2tgpo.config.settings import (
    ALMANAC,
    EnvironmentSettings,
    GainSettings,
    ModelSettings,
    RolloutSettings,
    StudySettings,
    TrainingSettings,
    UpdateSettings,
    VLLMSettings,
    WarmStartSettings,
)
from a2tgpo.errors import ConfigError

__all__ = [
    "ALMANAC",
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
