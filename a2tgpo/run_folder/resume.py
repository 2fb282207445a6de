"""A run's folder belongs to one recipe and to what its numbers rest on: before it is continued, both are compared."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from a2tgpo.config import Recipe, load_recipe
from a2tgpo.config.parsing import flat
from a2tgpo.errors import ConfigError
from a2tgpo.files import write_text
from a2tgpo.run_folder.manifest import differences

log = logging.getLogger(__name__)

FREE: Final = frozenset(
    {
        "name",
        "rollout.replays",
        "rollout.max_failed",
        "update.micro_batch_tokens",
        "update.max_skipped_updates",
        "training.checkpoint_every",
        "training.keep_checkpoints",
    }
)
"""Settings that may change between two parts of a run: they decide what it costs and what is kept, not what is learnt.
"""
NOTED: Final = ("a2tgpo", "git_commit", "python", "libraries", "machine")
"""Entries of the manifest that may change between two parts of a run; the change is written down."""
_COVERED: Final = ("settings", "recipe", "decoding", "algorithm", "algorithm_options", "seed")
"""Entries that repeat the recipe, which is compared by itself."""


_ALWAYS: Final = ("corpus_sha256", "questions_sha256", "model_sha256", "settings")
"""Entries of every manifest, of any version."""


def check_same_recipe(recipe: Recipe, folder: Path) -> None:
    """Refuse to call a run that was trained under other settings, in whole or in part, a run of this recipe.

    Raises:
        ConfigError: with the settings that differ, or if nothing says what the run was trained under.
    """
    stored = folder / "config.toml"
    if not _trained(folder):
        return
    if not stored.is_file():
        raise ConfigError(
            f"run folder: {folder} holds a run without its config.toml, expected the recipe that it was trained under;"
            " put the file back, choose another --name, or remove the folder"
        )
    before = load_recipe(stored)
    there, here = flat(asdict(before)), flat(asdict(recipe))
    differ = [
        name
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name) and name not in FREE and not name.startswith("study.")
    ]
    if "training.steps" in differ and _may_be_lengthened(before, recipe):
        differ.remove("training.steps")
    if differ:
        shown = ", ".join(f"{name} {there.get(name)!r} (now {here.get(name)!r})" for name in differ)
        steps = "; a run can be made longer, but not shorter, and only where update.schedule is 'constant'"
        raise ConfigError(
            f"run folder: {folder} was trained with {shown}, expected the same settings"
            f"{steps if 'training.steps' in differ else ''}; give them again, choose another --name, or remove it"
        )


def is_finished(recipe: Recipe, folder: Path) -> bool:
    """Does the folder hold the whole run of a recipe that `check_same_recipe` let pass?"""
    if not (folder / "finished").exists():
        return False
    return load_recipe(folder / "config.toml").training.steps >= recipe.training.steps


def check_same_inputs(described: dict[str, Any], folder: Path, step: int, allowed: Sequence[str]) -> None:
    """Compare what a run is about to be continued on with its manifest. What may change, or is allowed to, is added to
    the manifest as `parts.STEP`; the first entries are never changed.

    Args:
        described: the manifest that a new run would have now.
        step: at which the run is continued.
        allowed: entries (dotted names) that may differ nevertheless.

    Raises:
        ConfigError: with the entries that differ, or if the manifest is missing or damaged.
    """
    path = folder / "manifest.json"
    try:
        stored = dict(json.loads(path.read_text(encoding="utf-8")))
        if lacking := [name for name in _ALWAYS if name not in stored]:
            raise ValueError(f"no {', '.join(lacking)}")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"run folder: {path} cannot be read ({error}), expected the manifest that the run began with; put the file"
            " back, choose another --name, or remove the folder"
        ) from error
    first, parts = {name: value for name, value in stored.items() if name != "parts"}, stored.get("parts", {})
    unknown = tuple(name for name in described if name not in first)  # entries that older manifests do not have
    found = differences(first, described, varying=(*_COVERED, *unknown, *NOTED))
    refused = {name: pair for name, pair in found.items() if name not in differences_under(found, allowed)}
    if refused:
        shown = ", ".join(f"{name} {_short(before)} (now {_short(now)})" for name, (before, now) in refused.items())
        raise ConfigError(
            f"run folder: {folder} was begun with {shown}, expected the same; put back what it was, or accept it with"
            f" --allow {' '.join(refused)}, and the manifest will say so"
        )
    latest = flat(first) | {name: value for part in parts.values() for name, value in part.items()}
    noted = {
        name: value
        for name, value in flat(described).items()
        if latest.get(name) != value and (name in found or name.partition(".")[0] in NOTED)
    }
    if noted:
        log.warning("run: continued at step %d with other %s; written into %s", step, ", ".join(noted), path)
        parts = {**parts, str(step): noted}
        write_manifest(folder, {**first, "parts": parts})


def write_manifest(folder: Path, described: Mapping[str, Any]) -> None:
    """Write what a run's numbers rest on."""
    write_text(folder / "manifest.json", json.dumps(described, indent=1, sort_keys=True) + "\n")


def differences_under(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Those of the differing entries that one of the dotted names covers."""
    return [entry for entry in found if any(entry == name or entry.startswith(f"{name}.") for name in names)]


def _trained(folder: Path) -> bool:
    return (folder / "finished").exists() or any((folder / "checkpoints").glob("step-*"))


def _may_be_lengthened(before: Recipe, now: Recipe) -> bool:
    return now.update.schedule == "constant" and now.training.steps > before.training.steps


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 20 else f"{text[:12]}…"
