"""The weights that a run starts from: built and warm-started here, taken from a package, or given as a folder.

What takes long is made once and cached under `RUNS/.cache`, by the hash of everything that it depends on; a cached
folder is complete or not there.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from a2tgpo import __version__
from a2tgpo.config import ALMANAC, Recipe
from a2tgpo.display.lines import say
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.errors import ConfigError
from a2tgpo.files import file_sha256, publish
from a2tgpo.policy import Policy
from a2tgpo.run_folder.lock import claim

RESULT = "warm-start.json"
"""Written last into a cached warm start: what it led to, and the hash of every file."""


def prepare_model(recipe: Recipe, runs: Path, console: Console) -> Path:
    """The folder of the model that training starts from, made if it is not cached yet.

    Raises:
        ConfigError: if the source does not exist, or the warm start misses its target.
    """
    if not recipe.warm_start.enabled:
        folder = Path(recipe.model.source)
        if recipe.model.source in SOURCES:
            raise ConfigError(
                f"warm_start.enabled: got false with model.source {recipe.model.source!r}, which knows no protocol yet;"
                " set it to true"
            )
        return folder
    cached = runs / ".cache" / f"warm-start-{cache_key(recipe)}"
    with claim(runs / ".cache" / f".claim-{cache_key(recipe)}"):
        if (cached / RESULT).is_file():
            if _hashes(cached) == json.loads((cached / RESULT).read_text())["sha256"]:
                say(console, f"warm start: cached in {cached}")
                return cached
            say(console, f"warm start: {cached} differs from what was written there, making it again")
        _make(recipe, cached, console)
    return cached


def cache_key(recipe: Recipe) -> str:
    """Hash of all that the warm start depends on: questions, model, demonstrations, limits, version."""
    parts = {
        name: dataclasses.asdict(getattr(recipe, name)) for name in ("environment", "model", "warm_start", "rollout")
    }
    # the warm start has its own
    for setting in ("questions", "group_size", "on_bad_question", "replays", "max_failed"):
        parts["rollout"].pop(setting)
    parts["model"].pop("engine")
    text = json.dumps([__version__, torch.__version__, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(recipe: Recipe, folder: Path, console: Console) -> None:
    from a2tgpo.start.warm_start import warm_start

    torch.set_num_threads(recipe.model.threads)
    policy = (
        SOURCES[recipe.model.source](recipe) if recipe.model.source in SOURCES else Policy.load(recipe.model.source)
    )
    count = TextColumn("step {task.completed:.0f} of at most {task.total:.0f}")
    columns = (TextColumn("warm start    "), BarColumn(), count, TextColumn("{task.fields[score]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=recipe.warm_start.max_steps, score="")

        def show(step: int, metrics: Mapping[str, float]) -> None:
            score = f"sampled EM {metrics['sampled']:.2f}, wanted {metrics['target']:.2f}, loss {metrics['loss']:.3f}"
            bars.update(task, completed=step, score=score)
            if not console.is_terminal:
                text = f"warm start: step {step} of at most {recipe.warm_start.max_steps}, {score}"
                say(console, text)

        result = warm_start(policy, recipe, show)
    partial = folder.with_name(f".partial-{folder.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    policy.save(partial)
    (partial / RESULT).write_text(json.dumps(dataclasses.asdict(result) | {"sha256": _hashes(partial)}, indent=1))
    publish(partial, folder)
    text = (
        f"warm start: {result.steps} steps, held-out EM {result.sampled:.2f} sampled, {result.greedy:.2f} greedy; kept"
        f" in {folder}"
    )
    say(console, text)


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the result itself."""
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != RESULT}


def _tiny(recipe: Recipe) -> Policy:
    from a2tgpo.start.tiny import tiny_policy

    environment = recipe.environment
    if environment.id == ALMANAC and (environment.worlds < 2 or not environment.fictional):
        raise ConfigError(
            f"environment: got worlds {environment.worlds} and fictional {environment.fictional} with model.source"
            " 'tiny', whose vocabulary holds the names of drawn worlds only; expected at least 2 worlds and fictional"
            " true, or another model"
        )
    sizes = {name: int(value) for name, value in recipe.model.options.items()}
    return tiny_policy(protocol_of(recipe.environment.protocol).tags, recipe.warm_start.seed, **sizes)


def _smollm2(_recipe: Recipe) -> Policy:
    from a2tgpo.start.smollm2 import smollm2_policy

    return smollm2_policy()


SOURCES: dict[str, Callable[[Recipe], Policy]] = {"tiny": _tiny, "smollm2": _smollm2}
"""Models that are made here, by name."""
