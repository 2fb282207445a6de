"""`a2tgpo play`: one episode in the terminal, with a person, the scripted expert or a trained model as the agent."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

import a2tgpo.envs
from a2tgpo.commands.options import parse, printable
from a2tgpo.config import load_recipe
from a2tgpo.errors import ConfigError
from a2tgpo.training.parts import env_arguments

Agent = Callable[[str], str]
"""What was shown last → the agent's text."""


@dataclass(frozen=True)
class PlayOptions:
    """Whom to watch, and what is asked."""

    run: Annotated[str, tyro.conf.Positional] = ""
    """Folder of a finished run whose model plays; without one, you do."""
    recipe: str = "quickstart"
    """Recipe whose environment is played when there is no run."""
    question: str = ""
    """Question id; empty = drawn with the seed."""
    seed: int = 0
    split: str = "validation"


def play(words: list[str], console: Console) -> int:
    """Play one episode and print it turn by turn with the evidence scorer's information gain."""
    options = parse(PlayOptions, words, "play")
    folder = Path(options.run)
    if options.run and not (folder / "config.toml").is_file():
        raise ConfigError(
            f"run: got {options.run!r}, which has no config.toml; expected the folder of a run, like"
            " runs/quickstart/a2tgpo-s0"
        )
    if options.run and not (folder / "model").is_dir():
        raise ConfigError(
            f"run: got {options.run!r}, which is not finished and has no model yet; go on with a2tgpo train --resume"
            f" {options.run}"
        )
    recipe = load_recipe(folder / "config.toml" if options.run else options.recipe)
    a2tgpo.envs.register_envs()
    env = gymnasium.make(recipe.environment.id, split=options.split, **env_arguments(recipe.environment))
    agent = _model_agent(folder, recipe.rollout.max_action_tokens, env) if options.run else _human(console)
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
    console.print(
        f"{info['stop']}: reward {reward:g}, EM {info['em']:g}, F1 {info['f1']:.2f}; gold {gold}",
        highlight=False,
        markup=False,
    )
    return 0


def _human(console: Console) -> Agent:
    console.print("Write one action, for example <search> words </search> or <answer> words </answer>.", markup=False)

    def ask(_text: str) -> str:
        try:
            return console.input("> ", markup=False)
        except EOFError as error:
            raise ConfigError(
                "input: it ended before the episode did; expected one action a line until an answer or the last turn"
            ) from error

    return ask


def _model_agent(folder: Path, max_action_tokens: int, env: gymnasium.Env[Any, Any]) -> Agent:
    from a2tgpo.engines.base import Sampling, generate
    from a2tgpo.engines.transformers import TransformersEngine
    from a2tgpo.policy import Policy
    from a2tgpo.policy.chat import Chat

    policy = Policy.load(folder / "model")
    chat, engine = Chat(policy.tokenizer), TransformersEngine(policy)
    sampling = Sampling(max_action_tokens, env.get_wrapper_attr("protocol").stop_strings, temperature=0.0)
    ids: list[int] = []
    last: list[int] = []

    def act(text: str) -> str:
        ids.extend(chat.observation_ids(text, last) if ids else chat.prompt_ids(text))
        sample = generate(engine, [ids], sampling, [0])[0]
        last[:] = sample.token_ids
        ids.extend(sample.token_ids)
        return chat.decode(sample.token_ids)

    return act
