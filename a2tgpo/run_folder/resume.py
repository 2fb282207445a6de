"""A run's folder belongs to one recipe."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

from a2tgpo.config import Recipe, load_recipe
from a2tgpo.config.parsing import flat
from a2tgpo.errors import ConfigError

FREE: Final = frozenset(
    {
        "name",
        "update.micro_batch_tokens",
        "update.max_skipped_updates",
        "training.checkpoint_every",
        "training.keep_checkpoints",
    }
)
"""Settings that may change between two parts of a run: they decide what it costs and what is kept, not what is learnt.
"""


def check_same_recipe(recipe: Recipe, folder: Path) -> None:
    """Refuse to call a run that was trained under other settings, in whole or in part, a run of this recipe.

    Raises:
        ConfigError: with the settings that differ.
    """
    stored = folder / "config.toml"
    trained = (folder / "finished").exists() or any((folder / "checkpoints").glob("step-*"))
    if not (trained and stored.is_file()):
        return
    there, here = flat(asdict(load_recipe(stored))), flat(asdict(recipe))
    differ = [
        name
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name) and name not in FREE and not name.startswith("study.")
    ]
    if differ:
        shown = ", ".join(f"{name} {there.get(name)!r} (now {here.get(name)!r})" for name in differ)
        raise ConfigError(
            f"run folder: {folder} was trained with {shown}, expected the same settings; give them again, choose"
            " another --name, or remove it"
        )
