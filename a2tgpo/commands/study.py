"""Commands that read a recipe and train one run of it: train, recipes; and what `compare` shares with them."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse, split_recipe
from a2tgpo.config import Recipe, load_recipe, recipe_names, to_toml
from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.resume import check_same_recipe

_Inline = Annotated[Recipe, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class StudyOptions:
    """Settings of the recipe, and where its runs go."""

    recipe: _Inline = field(default_factory=Recipe)
    runs: Path = Path("runs")
    """Folder for runs; a study goes into a folder of its own in there."""
    allow: tuple[str, ...] = ()
    """Manifest entries in which runs of a study, or two parts of a run, may differ."""
    dry_run: bool = False
    """Print the complete recipe and stop."""


def read_recipe(
    words: list[str], command: str, console: Console, changed: Callable[[Recipe], Recipe] = lambda recipe: recipe
) -> StudyOptions | None:
    """The recipe with its settings; `None` if it was only to be printed. `changed` has the last word on the recipe."""
    name, rest = split_recipe(words, command)
    options = parse(StudyOptions, rest, command, StudyOptions(load_recipe(name)))
    study = options.recipe.study
    allowed = replace(study, allow=tuple(dict.fromkeys([*study.allow, *options.allow])))
    options = replace(options, recipe=changed(replace(options.recipe, study=allowed)))
    if options.dry_run:
        from a2tgpo.algorithms.loader import make_algorithm
        from a2tgpo.studies.contenders import contenders_of
        from a2tgpo.training.parts import nested

        for recipe in (
            [options.recipe]
            if command == "train"
            else [contender.recipe for contender in contenders_of(options.recipe)]
        ):
            make_algorithm(recipe.algorithm, nested(recipe.algorithm_options))
        console.print(to_toml(options.recipe), highlight=False, markup=False, soft_wrap=True)
        return None
    return options


def train(words: list[str], console: Console) -> int:
    """`a2tgpo train RECIPE`: one run, started or continued."""
    resumed = Path(words[1]) if words[:1] == ["--resume"] and len(words) > 1 else None
    if words[:1] == ["--resume"]:
        words = _resumed(words[1:])
    options = read_recipe(words, "train", console)
    if options is None:
        return 0
    from a2tgpo.algorithms.loader import make_algorithm
    from a2tgpo.engines import check_engine
    from a2tgpo.studies.contenders import label
    from a2tgpo.training.parts import limit_threads, nested

    recipe = options.recipe
    limit_threads(recipe.model.threads)
    from a2tgpo.start.prepare import prepare_model
    from a2tgpo.training.loop import train as run

    make_algorithm(recipe.algorithm, nested(recipe.algorithm_options))  # before the warm start, which may take minutes
    check_engine(recipe)
    folder = resumed or options.runs / recipe.name / f"{label(recipe.algorithm)}-s{recipe.seed}"
    check_same_recipe(recipe, folder)
    model_folder = prepare_model(recipe, options.runs, console)

    def show(kind: str, step: int, values: Mapping[str, float]) -> None:
        shown = ("em", "f1", "searches", "gain_per_turn", "clip_fraction", "entropy")
        console.print(
            f"{kind:<10} {step:>5}  " + "  ".join(f"{name} {values[name]:.3f}" for name in shown if name in values),
            highlight=False,
        )

    finished = run(recipe, folder, model_folder, show)
    text = (
        f"finished: {folder}"
        if finished
        else f"stopped: {folder}; resume with a2tgpo train --resume {shlex.quote(str(folder))}"
    )
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _resumed(words: list[str]) -> list[str]:
    """`--resume RUN` as the arguments of the run that it names."""
    folder = Path(words[0]) if words else Path()
    if not (folder / "config.toml").is_file():
        raise ConfigError(
            f"--resume: got {str(folder)!r}, which has no config.toml; expected the folder of a run, like"
            " runs/quickstart/a2tgpo-s0"
        )
    return [str(folder / "config.toml"), "--runs", str(folder.resolve().parent.parent), *words[1:]]


def recipes(words: list[str], console: Console) -> int:
    """`a2tgpo recipes`: names and first comment lines."""
    for name in recipe_names():
        recipe = load_recipe(name)
        console.print(
            f"{name:<24}{recipe.environment.id}, model {recipe.model.source}, {recipe.training.steps} steps",
            highlight=False,
        )
    return 0
