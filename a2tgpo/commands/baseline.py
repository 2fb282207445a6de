"""`a2tgpo baseline table|sb3`: what one compares with."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console

from a2tgpo.commands.options import choose
from a2tgpo.config import Recipe, load_recipe
from a2tgpo.config.parsing import Range
from a2tgpo.config.settings import Count, Natural, NotNegative
from a2tgpo.display.lines import say
from a2tgpo.display.tables import show
from a2tgpo.errors import ConfigError
from a2tgpo.files import output_folder
from a2tgpo.training.parts import limit_threads

if TYPE_CHECKING:
    from a2tgpo.baselines import Voice
    from a2tgpo.baselines.reference import Reference
    from a2tgpo.run_folder.load import LoadedRun

SIDE_BY_SIDE = 64
"""Episodes in flight together."""


@dataclass(frozen=True)
class TableOptions:
    """The reference table: agents × EM, F1, searches, turns, tokens."""

    recipe: str = "quickstart"
    """Recipe whose environment the questions come from."""
    model: str = ""
    """Model folder, or folder of a finished run, for the agents with a language model; without it they are left out."""
    agents: tuple[str, ...] = ()
    """Names of agents; all that can be played if left out."""
    split: str = "test"
    """Split that the questions come from."""
    questions: Count = 400
    """Questions at most: a seeded draw from the split."""
    max_new_tokens: Count = 64
    """Tokens of one generation at most."""
    temperature: NotNegative = 0.0
    """0 = greedy and deterministic."""
    seed: Natural = 0
    """Of the drawn questions and of sampling."""
    output: Path | None = None
    """Folder for the table (reference.csv) and the results per question (reference.jsonl)."""


@dataclass(frozen=True)
class Sb3Options:
    """Agents of stable-baselines3 without a language model, with and without information gain in the reward."""

    algo: Literal["ppo", "a2c", "dqn", "maskable_ppo"] = "ppo"
    """Algorithm; maskable_ppo is that of sb3-contrib."""
    recipe: str = "quickstart"
    """Recipe whose environment is trained in."""
    steps: Count = 100_000
    """Environment steps of a run."""
    seeds: Annotated[tuple[Natural, ...], Range(1)] = (0, 1, 2)
    """One run with each."""
    gain_weight: NotNegative = 0.1
    """Weight of information gain (nats) in the reward of the second half of the runs; 0 trains with the outcome only.
    """
    workers: Count = 2
    """Runs side by side, one process each; 1 shows SB3's progress bars."""
    output: Path = Path("runs/sb3")
    """Folder for curves.csv, curves.png and SB3's TensorBoard logs."""


def baseline(words: list[str], console: Console) -> int:
    """Run `a2tgpo baseline`."""
    kinds: dict[str, type[TableOptions | Sb3Options]] = {"table": TableOptions, "sb3": Sb3Options}
    options = choose(kinds, words, "baseline")
    if isinstance(options, TableOptions):
        table(options, console)
    else:
        sb3(options, console)
    return 0


def table(options: TableOptions, console: Console) -> None:
    """Print the reference table: agents × EM, F1, searches, turns, tokens."""
    from a2tgpo.baselines import AGENTS, agent_of
    from a2tgpo.baselines.reference import terminal_table, warnings_of, write_references

    for name in options.agents:
        agent_of(name)
    recipe, folder = _recipe_and_model(options)
    if options.output is not None:
        output_folder("--output", options.output)
    names = options.agents or [name for name, spec in AGENTS.items() if folder or not spec.needs_model]
    references = _references(options, recipe, folder, list(names))
    title = f"{recipe.environment.id}, {options.split}: {len(references[0].rows)} questions"
    show(console, terminal_table(references, title))
    for warning in warnings_of(references):
        say(console, f"note: {warning}")
    if not folder and not options.agents:
        left_out = ", ".join(name for name, spec in AGENTS.items() if spec.needs_model)
        say(console, f"left out without a language model: {left_out}; add --model FOLDER")
    if options.output is not None:
        write_references(references, options.output)
        say(console, f"written: {options.output / 'reference.csv'}")


def sb3(options: Sb3Options, console: Console) -> None:
    """Train agents without a language model on the discrete wrapper, with and without information gain in the
    reward.
    """
    recipe = load_recipe(options.recipe)
    limit_threads(1)
    from a2tgpo.baselines.sb3.study import run, summary, write_study
    from a2tgpo.baselines.sb3.train import Sb3Settings

    start = time.monotonic()
    weights = (0.0, options.gain_weight) if options.gain_weight else (0.0,)
    settings = Sb3Settings(options.algo, steps=options.steps)
    output_folder("--output", options.output)
    study = run(settings, recipe.environment, options.seeds, weights, options.workers, options.output / "tensorboard")
    write_study(study, options.output / options.algo)
    lines = [
        f"{options.algo}, {options.steps:,} steps, {len(study.curves)} runs in {time.monotonic() - start:.0f} s",
        *(f"  {name}: {finding}" for name, finding in summary(study).items()),
        f"written: {options.output / options.algo / 'curves.png'}; tensorboard --logdir"
        f" {options.output / 'tensorboard'}",
    ]
    say(console, *lines)


def _recipe_and_model(options: TableOptions) -> tuple[Recipe, Path | None]:
    if not options.model:
        return load_recipe(options.recipe), None
    from a2tgpo.run_folder.load import is_run, model_folder, recipe_file

    folder = Path(options.model)
    if not folder.is_dir():
        raise ConfigError(
            f"--model: got {options.model!r}, which is not a folder; expected a model folder, or the folder of a run"
            " like runs/quickstart/a2tgpo-s0"
        )
    if is_run(folder):
        return load_recipe(recipe_file(folder)), model_folder(folder)
    return load_recipe(options.recipe), folder


def _references(options: TableOptions, recipe: Recipe, folder: Path | None, names: list[str]) -> "list[Reference]":
    from a2tgpo.baselines.reference import reference_rows
    from a2tgpo.run_folder.load import is_run, load_model
    from a2tgpo.training.parts import make_env
    from a2tgpo.training.questions import fixed_subset

    env = make_env(recipe, options.split, SIDE_BY_SIDE)
    questions = fixed_subset(env.questions, options.questions, options.seed)
    run = None if folder is None else load_model(recipe, folder)
    voice = None if run is None else _voice(options, run)
    references = reference_rows(names, env, [question.id for question in questions], options.seed, voice)
    if run is not None and is_run(Path(options.model)) and not options.agents:
        references.append(_trained(options, run))
    return references


def _trained(options: TableOptions, run: "LoadedRun") -> "Reference":
    """The trained policy itself, for comparison: the run's model in the run's own rollout."""
    from a2tgpo.baselines.reference import Reference
    from a2tgpo.training.evaluate import evaluate
    from a2tgpo.training.parts import make_split
    from a2tgpo.training.questions import fixed_subset

    split = make_split(run.recipe, run.policy, run.engine, options.split, SIDE_BY_SIDE)
    questions = fixed_subset(split.questions, options.questions, options.seed)
    played = evaluate(split.rollout, questions, seed=options.seed, temperature=options.temperature)
    return Reference("policy", f"trained with {run.recipe.algorithm}", tuple(played.rows()))


def _voice(options: TableOptions, run: "LoadedRun") -> "Voice":
    """The model with whatever engine the recipe names."""
    from a2tgpo.baselines import Voice
    from a2tgpo.policy.chat import Chat

    chat = Chat(run.policy.tokenizer, run.recipe.model.chat_template, end_token_ids=run.policy.end_token_ids)
    return Voice(run.engine, chat, run.policy.max_tokens, options.max_new_tokens, options.temperature)
