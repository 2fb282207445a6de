"""A run, or a model folder with a recipe, as something that can play: the one way for every command that wants a
policy.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from a2tgpo.config import Recipe, load_recipe
from a2tgpo.engines import Engine, engine_of
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.envs.settings import read_instructions
from a2tgpo.errors import ConfigError
from a2tgpo.information_gain import Scoring
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.policy.load import chat_of, load_policy
from a2tgpo.run_folder.checkpoint import best_checkpoint, checkpoints, is_model, verified_state

Which = Literal["last", "best"] | int
"""A run's checkpoint: the final model or, before the end, the newest checkpoint; the one with the best held-out
outcome; that of a step.
"""


@dataclass(frozen=True)
class LoadedRun:
    """A policy with the recipe that it was trained with, or is to play under."""

    recipe: Recipe
    model_folder: Path
    """Where the weights were read from."""
    policy: Policy

    @property
    def chat(self) -> Chat:
        """How the recipe's environment is written for the policy."""
        environment = self.recipe.environment
        prompt = read_instructions(environment.instructions) if environment.instructions else None
        return chat_of(self.recipe.model, self.policy, protocol_of(environment.protocol), prompt)

    @property
    def scoring(self) -> Scoring:
        """How the recipe scores episodes."""
        protocol = protocol_of(self.recipe.environment.protocol)
        return Scoring.of(protocol, self.recipe.information_gain, self.recipe.update.micro_batch_tokens)

    @cached_property
    def engine(self) -> Engine:
        """The recipe's engine with the policy's weights, started when it is first asked for."""
        return engine_of(self.recipe, self.policy)


def load_run(folder: Path, checkpoint: Which = "last") -> LoadedRun:
    """The policy of a run, as it was trained: dtype, device, threads, chat template, engine.

    Raises:
        ConfigError: if the folder holds no run, or not that checkpoint; names those that it holds.
    """
    recipe = load_recipe(recipe_file(folder))
    return load_model(recipe, model_folder(folder, checkpoint))


def load_model(recipe: Recipe, folder: Path) -> LoadedRun:
    """The model of any folder, to play under a recipe.

    Raises:
        ConfigError: if the folder holds no model that can be used.
    """
    return LoadedRun(recipe, folder, load_policy(recipe.model, folder))


def checkpoint_named(text: str) -> Which:
    """A checkpoint as one types it: `last`, `best` or a step.

    Raises:
        ConfigError: for any other word.
    """
    if text in ("last", "best"):
        return "last" if text == "last" else "best"
    if not text.isdecimal():
        raise ConfigError(f"checkpoint: got {text!r}, expected 'last', 'best' or the number of a step")
    return int(text)


def is_run(folder: Path) -> bool:
    """Is it the folder of a run?"""
    return (folder / "config.toml").is_file()


def recipe_file(folder: Path) -> Path:
    """The complete recipe of a run.

    Raises:
        ConfigError: if the folder holds no run.
    """
    if not is_run(folder):
        raise ConfigError(
            f"run: got {str(folder)!r}, which has no config.toml; expected the folder of a run, like"
            " runs/quickstart/a2tgpo-s0"
        )
    return folder / "config.toml"


def model_folder(folder: Path, checkpoint: Which = "last") -> Path:
    """The folder that holds a run's weights.

    Raises:
        ConfigError: if the run has no such checkpoint; names those that it has.
        CheckpointError: if it is damaged.
    """
    saved = {int(path.name.removeprefix("step-")): path for path in checkpoints(folder / "checkpoints")}
    if checkpoint == "last" and (folder / "finished").exists():
        return folder / "model"
    wanted = max(saved, default=None) if checkpoint == "last" else checkpoint
    found = best_checkpoint(folder / "checkpoints") if wanted == "best" else saved.get(wanted or 0)
    if found is None:
        raise ConfigError(
            f"checkpoint: got {checkpoint!r} for {folder}, expected 'last', 'best' or one of the steps that it keeps:"
            f" {', '.join(map(str, saved)) or 'none yet'}; continue the run with a2tgpo train --resume {folder}"
        )
    if not is_model(found):
        raise ConfigError(
            f"checkpoint: {found} was written before checkpoints were model folders, so it can be resumed but not"
            f" loaded alone; continue the run with a2tgpo train --resume {folder}"
        )
    verified_state(found)
    return found
