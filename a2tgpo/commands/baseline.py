"""`a2tgpo baseline table|sb3`: what one compares with."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.config import Recipe, load_recipe
from a2tgpo.display.tables import show
from a2tgpo.errors import ConfigError
from a2tgpo.training.parts import limit_threads

if TYPE_CHECKING:
    from a2tgpo.baselines import Voice
    from a2tgpo.baselines.reference import Reference
    from a2tgpo.run_folder.load import LoadedRun

SIDE_BY_SIDE = 64
"""Episodes in flight together."""


@dataclass(frozen=True)
class TableOptions:
    """Which agents are compared, and on what."""

    recipe: str = "quickstart"
    """Recipe whose environment the questions come from."""
    model: str = ""
    """Model folder, or folder of a finished run, for the agents with a language model; without it they are left out."""
    agents: tuple[str, ...] = ()
    """Names of agents; all that can be played if left out."""
    split: str = "test"
    questions: int = 400
    """Questions at most: a seeded draw from the split."""
    max_new_tokens: int = 64
    """Tokens of one generation at most."""
    temperature: float = 0.0
    seed: int = 0
    output: Path | None = None
    """Folder for the table (reference.csv) and the results per question (reference.jsonl)."""


@dataclass(frozen=True)
class Sb3Options:
    """What stable-baselines3 trains, and how long."""

    algo: Literal["ppo", "a2c", "dqn", "maskable_ppo"] = "ppo"
    """Algorithm; maskable_ppo is that of sb3-contrib."""
    recipe: str = "quickstart"
    """Recipe whose environment is trained in."""
    steps: int = 100_000
    """Environment steps of a run."""
    seeds: tuple[int, ...] = (0, 1, 2)
    gain_weight: float = 0.1
    """Weight of information gain (nats) in the reward of the second half of the runs; 0 trains with the outcome only.
    """
    workers: int = 2
    """Runs side by side, one process each; 1 shows SB3's progress bars."""
    output: Path = Path("runs/sb3")
    """Folder for curves.csv, curves.png and SB3's TensorBoard logs."""


def baseline(words: list[str], console: Console) -> int:
    """Run `a2tgpo baseline table|sb3`."""
    if words[:1] in (["-h"], ["--help"]):
        console.print("a2tgpo baseline table | sb3   (--help after one of them tells its settings)")
        return 0
    if not words or words[0] not in ("table", "sb3"):
        raise ConfigError(
            f"baseline: got {words[0] if words else 'nothing'!r}, expected table [--model FOLDER], or sb3 --algo"
            " ppo|a2c|dqn"
        )
    return table(words[1:], console) if words[0] == "table" else sb3(words[1:], console)


def table(words: list[str], console: Console) -> int:
    """Print the reference table: agents × EM, F1, searches, turns, tokens."""
    options = parse(TableOptions, words, "baseline table")
    from a2tgpo.baselines import AGENTS, agent_of
    from a2tgpo.baselines.reference import terminal_table, warnings_of, write_references

    for name in options.agents:
        agent_of(name)
    recipe, folder = _recipe_and_model(options)
    names = options.agents or [name for name, spec in AGENTS.items() if folder or not spec.needs_model]
    references = _references(options, recipe, folder, list(names))
    title = f"{recipe.environment.id}, {options.split}: {len(references[0].rows)} questions"
    show(console, terminal_table(references, title))
    for warning in warnings_of(references):
        console.print(f"note: {warning}", highlight=False)
    if not folder and not options.agents:
        left_out = ", ".join(name for name, spec in AGENTS.items() if spec.needs_model)
        console.print(f"left out without a language model: {left_out}; add --model FOLDER", highlight=False)
    if options.output is not None:
        write_references(references, options.output)
        console.print(f"written: {options.output / 'reference.csv'}", highlight=False, markup=False, soft_wrap=True)
    return 0


def sb3(words: list[str], console: Console) -> int:
    """Train agents without a language model on the discrete wrapper, with and without information gain in the
    reward.
    """
    options = parse(Sb3Options, words, "baseline sb3")
    if options.steps < 1 or options.workers < 1 or not options.seeds:
        got = f"--steps {options.steps} --workers {options.workers} --seeds {' '.join(map(str, options.seeds))}"
        raise ConfigError(f"baseline sb3: got {got}, expected at least one step, one worker and one seed")
    recipe = load_recipe(options.recipe)
    limit_threads(1)
    from a2tgpo.baselines.sb3.study import run, summary, write_study
    from a2tgpo.baselines.sb3.train import Sb3Settings

    start = time.monotonic()
    weights = (0.0, options.gain_weight) if options.gain_weight else (0.0,)
    settings = Sb3Settings(options.algo, steps=options.steps)
    try:
        study = run(
            settings, recipe.environment, options.seeds, weights, options.workers, options.output / "tensorboard"
        )
    except ImportError as error:
        raise ConfigError(str(error)) from error
    write_study(study, options.output / options.algo)
    lines = [
        f"{options.algo}, {options.steps:,} steps, {len(study.curves)} runs in {time.monotonic() - start:.0f} s",
        *(f"  {name}: {finding}" for name, finding in summary(study).items()),
        f"written: {options.output / options.algo / 'curves.png'}; tensorboard --logdir"
        f" {options.output / 'tensorboard'}",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


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

    chat = Chat(run.policy.tokenizer, run.recipe.model.chat_template)
    return Voice(run.engine, chat, run.policy.max_tokens, options.max_new_tokens, options.temperature)
