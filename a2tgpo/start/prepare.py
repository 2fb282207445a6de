"""The weights that a run starts from: built and warm-started here, taken from a package, or given as a folder.

What takes long is made once and cached under `RUNS/.cache`, by the hash of everything that it depends on; a cached
folder is complete or not there.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from a2tgpo import __version__
from a2tgpo.checks import did_you_mean
from a2tgpo.config import ALMANAC, Recipe
from a2tgpo.display.lines import say
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.errors import ConfigError
from a2tgpo.files import file_sha256, publish
from a2tgpo.policy import Policy
from a2tgpo.policy.reading import check_folder
from a2tgpo.run_folder.lock import InUseError, claim

RESULT = "warm-start.json"
"""Written last into a cached warm start: what it led to, and the hash of every file."""
POLL_SECONDS = 1.0
"""Between looks at a warm start that another process makes."""


def prepare_model(recipe: Recipe, runs: Path, console: Console) -> Path:
    """The folder of the model that training starts from, made if it is not cached yet.

    Any number of processes read a cached one at the same time; one at a time makes it, and the others wait for it.

    Raises:
        ConfigError: as `check_source`, or if the warm start misses its target.
    """
    check_source(recipe)
    if not recipe.warm_start.enabled:
        return Path(recipe.model.source)
    cached, waiting = runs / ".cache" / f"warm-start-{cache_key(recipe)}", False
    while not _is_whole(cached):
        try:
            with claim(runs / ".cache" / f".claim-{cache_key(recipe)}"):
                if not _is_whole(cached):  # made in the meantime, perhaps
                    if cached.exists():
                        say(console, f"warm start: {cached} differs from what was written there, making it again")
                    _make(recipe, cached, console)
                    return cached
        except InUseError:
            if not waiting:
                say(console, f"warm start: another process is making {cached}, waiting for it")
            waiting = True
            time.sleep(POLL_SECONDS)
    say(console, f"warm start: cached in {cached}")
    return cached


def check_source(recipe: Recipe) -> None:
    """Check what a run begins from, as far as that goes without reading weights.

    Raises:
        ConfigError: if the model's source does not exist or does not go with the rest of the recipe.
    """
    source, warm = recipe.model.source, recipe.warm_start.enabled
    if source not in SOURCES and not Path(source).is_dir():
        raise ConfigError(
            f"model.source: got {source!r}, expected {', '.join(SOURCES)} or the folder of a"
            f" model{did_you_mean(source, SOURCES)}"
        )
    if source in SOURCES and not warm:
        raise ConfigError(
            f"warm_start.enabled: got false with model.source {source!r}, which knows no protocol yet; set it to true"
        )
    if warm and recipe.environment.id != ALMANAC:
        raise ConfigError(
            f"warm_start.enabled: got true for {recipe.environment.id!r}, but only {ALMANAC!r} has a scripted expert;"
            " set it to false"
        )
    if warm and recipe.environment.retriever.startswith("http"):
        raise ConfigError(
            f"environment.retriever: got {recipe.environment.retriever!r} with warm_start.enabled, but the scripted"
            " expert reads the passages of its own worlds; expected bm25 or rank_bm25, or warm_start.enabled = false"
            " and the folder of a model as model.source"
        )
    if source in SOURCES:
        SOURCES[source].check(recipe)
    else:
        check_folder(Path(source))


def _is_whole(folder: Path) -> bool:
    """Does the folder hold a finished warm start, every byte as it was written?"""
    try:
        written = json.loads((folder / RESULT).read_text(encoding="utf-8"))["sha256"]
        return bool(_hashes(folder) == written)
    except (OSError, ValueError, KeyError, TypeError):  # not there, or not what was written
        return False


def cache_key(recipe: Recipe) -> str:
    """Hash of all that the warm start depends on: questions, model, demonstrations, limits, version."""
    parts = {
        name: dataclasses.asdict(getattr(recipe, name)) for name in ("environment", "model", "warm_start", "rollout")
    }
    # the warm start has its own
    for setting in ("questions", "group_size", "on_bad_question", "replays", "max_failed", "max_response_tokens"):
        parts["rollout"].pop(setting)
    parts["model"].pop("engine")
    text = json.dumps([__version__, torch.__version__, parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(recipe: Recipe, folder: Path, console: Console) -> None:
    from a2tgpo.start.warm_start import warm_start

    torch.set_num_threads(recipe.model.threads)
    source = recipe.model.source
    policy = SOURCES[source].make(recipe) if source in SOURCES else Policy.load(source)
    with _progress(console, recipe.warm_start.max_steps) as show:
        result = warm_start(policy, recipe, show)
    for left in folder.parent.glob(f".partial-{folder.name}-*"):  # of a process that was killed; this one has the claim
        shutil.rmtree(left)
    partial = folder.with_name(f".partial-{folder.name}-{os.getpid()}")
    policy.save(partial)
    (partial / RESULT).write_text(json.dumps(dataclasses.asdict(result) | {"sha256": _hashes(partial)}, indent=1))
    publish(partial, folder)
    text = (
        f"warm start: {result.steps} steps, held-out EM {result.sampled:.2f} sampled, {result.greedy:.2f} greedy; kept"
        f" in {folder}"
    )
    say(console, text)


@contextmanager
def _progress(console: Console, most: int) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """A bar in a terminal; elsewhere, as in a log file, a line per evaluation."""

    def told(metrics: Mapping[str, float]) -> str:
        return f"sampled EM {metrics['sampled']:.2f}, wanted {metrics['target']:.2f}, loss {metrics['loss']:.3f}"

    if not console.is_terminal:
        yield lambda step, metrics: say(console, f"warm start: step {step} of at most {most}, {told(metrics)}")
        return
    count = TextColumn("step {task.completed:.0f} of at most {task.total:.0f}")
    columns = (TextColumn("warm start    "), BarColumn(), count, TextColumn("{task.fields[score]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        task = bars.add_task("", total=most, score="")
        yield lambda step, metrics: bars.update(task, completed=step, score=told(metrics))


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the result itself."""
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != RESULT}


def _check_tiny(recipe: Recipe) -> None:
    from a2tgpo.start.tiny import check_sizes

    environment = recipe.environment
    if environment.worlds < 2 or not environment.fictional:
        raise ConfigError(
            f"environment: got worlds {environment.worlds} and fictional {environment.fictional} with model.source"
            " 'tiny', whose vocabulary holds the names of drawn worlds only; expected at least 2 worlds and fictional"
            " true, or another model"
        )
    check_sizes(recipe.model.options)


def _tiny(recipe: Recipe) -> Policy:
    from a2tgpo.start.tiny import tiny_policy

    sizes = {name: int(value) for name, value in recipe.model.options.items()}
    return tiny_policy(protocol_of(recipe.environment.protocol).tags, recipe.warm_start.seed, **sizes)


def _check_smollm2(_recipe: Recipe) -> None:
    from a2tgpo.start.smollm2 import weights_file

    weights_file()


def _smollm2(_recipe: Recipe) -> Policy:
    from a2tgpo.start.smollm2 import smollm2_policy

    return smollm2_policy()


@dataclass(frozen=True, slots=True)
class Source:
    """A model that is made here."""

    check: Callable[[Recipe], None]
    """Raises ConfigError if it cannot be made."""
    make: Callable[[Recipe], Policy]


SOURCES = {"tiny": Source(_check_tiny, _tiny), "smollm2": Source(_check_smollm2, _smollm2)}
"""Models that are made here, by name."""
