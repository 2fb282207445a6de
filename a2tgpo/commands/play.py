"""`a2tgpo play`: one episode in the terminal, with a person, the scripted expert or a trained model as the agent."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from a2tgpo.commands.options import parse
from a2tgpo.config import load_recipe
from a2tgpo.config.settings import Natural
from a2tgpo.display.lines import printable, say
from a2tgpo.envs.registration import check_id
from a2tgpo.errors import ConfigError

if TYPE_CHECKING:
    from a2tgpo.run_folder.load import LoadedRun

Agent = Callable[[str], str]
"""What was shown last → the agent's text."""


@dataclass(frozen=True)
class PlayOptions:
    """Whom to watch, and what is asked."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = ""
    """Folder of a finished run whose model plays; without one, you do."""
    recipe: str = "quickstart"
    """Recipe whose environment is played when there is no run."""
    question: str = ""
    """Question id; empty = drawn with the seed."""
    seed: Natural = 0
    """Draws the question."""
    split: str = "validation"
    """Split that the question comes from."""


def play(words: list[str], console: Console) -> int:
    """Play one episode and print it turn by turn with the evidence scorer's information gain."""
    options = parse(PlayOptions, words, "play")
    from a2tgpo.run_folder.load import load_run

    run = load_run(Path(options.run)) if options.run else None
    recipe = load_recipe(options.recipe) if run is None else run.recipe
    check_id(recipe.environment.id)
    env = gymnasium.make(recipe.environment.id, split=options.split, **recipe.environment.arguments())
    agent = _human(console) if run is None else _model_agent(run, env)
    text, info = env.reset(seed=options.seed, options={"question_id": options.question} if options.question else None)
    console.print(Panel(Text(printable(text)), title=Text(printable(f"question {info['question_id']}"))))
    terminated = truncated = False
    while not (terminated or truncated):
        action = agent(text)
        text, reward, terminated, truncated, info = env.step(action)
        console.print(Panel(Text(printable(action)), title=f"turn {info['turn']}: {info['action']}", style="cyan"))
        if text:
            gain = info["information_gain"]
            console.print(
                Panel(
                    Text(printable(text)),
                    title="observation",
                    subtitle=f"information gain {gain:+.2f} nats" if gain == gain else None,
                )
            )
    golds = env.get_wrapper_attr("pool").find(info["question_id"]).answers
    gold = printable(", ".join(golds))
    say(console, f"{info['stop']}: reward {reward:g}, EM {info['em']:g}, F1 {info['f1']:.2f}; gold {gold}")
    return 0


def _human(console: Console) -> Agent:
    say(console, "Write one action, for example <search> words </search> or <answer> words </answer>.")

    def ask(_text: str) -> str:
        try:
            return console.input("> ", markup=False)
        except EOFError as error:
            raise ConfigError(
                "input: it ended before the episode did; expected one action a line until an answer or the last turn"
            ) from error

    return ask


FREE_ACTION_TOKENS = 1024
"""Sampled tokens per turn where the recipe sets no limit of their own."""


def _model_agent(run: "LoadedRun", env: gymnasium.Env[Any, Any]) -> Agent:
    from a2tgpo.engines import Sampling, generate

    chat, engine, stop = run.chat, run.engine, env.get_wrapper_attr("protocol").stop_strings
    limits = run.recipe.rollout
    sampling = Sampling(limits.max_action_tokens or FREE_ACTION_TOKENS, stop, temperature=0.0)
    ids: list[int] = []
    last: list[int] = []

    def act(text: str) -> str:
        ids.extend(chat.observation_ids(text, last) if ids else chat.prompt_ids(text))
        sample = generate(engine, [ids], sampling, [0])[0]
        last[:] = sample.token_ids
        ids.extend(sample.token_ids)
        return chat.decode(sample.token_ids)

    return act
