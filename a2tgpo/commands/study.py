"""Commands that read a recipe and train one run of it: train, recipes; and what `compare` shares with them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from a2tgpo.commands.options import Inline, Repeated, parse
from a2tgpo.config import Recipe, load_recipe, recipe_names, to_toml
from a2tgpo.display.lines import say
from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.resume import check_same_recipe

Source = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
SHOWN = ("em", "f1", "searches", "gain_per_turn", "clip_fraction", "entropy")
"""Metrics that `train` prints."""


@dataclass(frozen=True)
class TrainOptions:
    """Train one run, or resume it. Every setting of the recipe can be given as an option."""

    source: Source = ""
    """Name of a shipped recipe (`a2tgpo recipes` lists them), or a .toml file. Stands first."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, instead of RECIPE; its own settings are used."""
    runs: Path = Path("runs")
    """Folder for runs; a study goes into a folder of its own in there."""
    allow: Annotated[Repeated, tyro.conf.arg(metavar="ENTRY …")] = ()
    """Resume although the manifest differs in these entries."""
    dry_run: bool = False
    """Print the complete recipe and what it needs (files, index, memory, time), and stop."""
    recipe: Annotated[Recipe, Inline] = field(default_factory=Recipe)


@dataclass(frozen=True)
class RecipesOptions:
    """List the recipes that ship with the package."""


def source_of(words: Sequence[str], command: str) -> Recipe:
    """The recipe that stands first, before any of its settings is changed.

    Raises:
        ConfigError: if there is no recipe, or it cannot be read.
    """
    if words and not words[0].startswith("-"):
        return load_recipe(words[0])
    if any(word in ("-h", "--help") for word in words):
        return Recipe()
    raise ConfigError(
        f"recipe: got none, expected `a2tgpo {command} RECIPE …` with a .toml file or one of"
        f" {', '.join(recipe_names())}"
    )


def train(words: list[str], console: Console) -> int:
    """`a2tgpo train RECIPE`: one run, started or resumed."""
    resumed = _resumed(words)
    start = source_of(words, "train") if resumed is None else load_recipe(resumed / "config.toml")
    options = parse(TrainOptions, words, "train", TrainOptions(recipe=start))
    if resumed is not None and options.source:
        raise ConfigError(f"train: got RECIPE {options.source!r} and --resume {resumed}, expected one of them")
    recipe = with_added(options.recipe, allow=options.allow)
    if options.dry_run:
        recipe.build_algorithm()
        describe(console, recipe)
        return 0
    from a2tgpo.studies.contenders import label
    from a2tgpo.training.parts import limit_threads

    limit_threads(recipe.model.threads)
    from a2tgpo.start.prepare import prepare_model
    from a2tgpo.start.recipe_checks import check_recipes
    from a2tgpo.training.loop import train as run

    envs = check_recipes([recipe])  # held, so that their indices are built once
    runs = options.runs if resumed is None else resumed.resolve().parent.parent
    folder = resumed or runs / recipe.name / f"{label(recipe.algorithm)}-s{recipe.seed}"
    check_same_recipe(recipe, folder)
    model_folder = prepare_model(recipe, runs, console)

    def show(kind: str, step: int, values: Mapping[str, float]) -> None:
        shown = "  ".join(f"{name} {values[name]:.3f}" for name in SHOWN if name in values)
        say(console, f"{kind:<10} {step:>5}  {shown}")

    finished = run(recipe, folder, model_folder, show)
    del envs
    resume = f"stopped: {folder}; resume with a2tgpo train --resume {shlex.quote(str(folder))}"
    say(console, f"finished: {folder}" if finished else resume)
    return 0


def describe(console: Console, recipe: Recipe, contenders: int = 1) -> None:
    """Print the complete recipe, and as comments below it what it needs."""
    from a2tgpo.start.needs import needs_of

    say(console, to_toml(recipe))
    for line in needs_of(recipe, contenders):
        say(console, f"# {line}")


def with_added(recipe: Recipe, **lists: Sequence[Sequence[str]]) -> Recipe:
    """The recipe with the values of repeated options appended to lists of its study, each once."""
    longer: dict[str, Any] = {
        name: tuple(dict.fromkeys([*getattr(recipe.study, name), *(value for values in given for value in values)]))
        for name, given in lists.items()
    }
    return replace(recipe, study=replace(recipe.study, **longer))


def _resumed(words: Sequence[str]) -> Path | None:
    """The folder behind `--resume`, which has to be read before the other options are: its settings are the defaults.

    Raises:
        ConfigError: if it is not the folder of a run.
    """
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag == "--resume":
            folder = Path(value if equals else following)
            if not (folder / "config.toml").is_file():
                raise ConfigError(
                    f"--resume: got {str(folder)!r}, which has no config.toml; expected the folder of a run, like"
                    " runs/quickstart/a2tgpo-s0"
                )
            return folder
    return None


def recipes(words: list[str], console: Console) -> int:
    """`a2tgpo recipes`: names, environments, models and lengths."""
    parse(RecipesOptions, words, "recipes")
    for name in recipe_names():
        recipe = load_recipe(name)
        say(console, f"{name:<24}{recipe.environment.id}, model {recipe.model.source}, {recipe.training.steps} steps")
    return 0
