"""`a2tgpo play`: one episode in the terminal, played by a trained policy, or by you."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import gymnasium
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from a2tgpo.commands.options import parse
from a2tgpo.config import load_recipe
from a2tgpo.config.settings import Natural
from a2tgpo.display.lines import printable, say
from a2tgpo.envs import Question
from a2tgpo.envs.registration import check_id
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class PlayOptions:
    """Watch the policy of a run in one episode, played as in training but greedily; or play one yourself."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = ""
    """Folder of a run whose policy plays; without one, you do."""
    checkpoint: str = "last"
    """`last`, `best` by held-out outcome, or the number of a step whose checkpoint is kept."""
    recipe: str = "quickstart"
    """Recipe whose environment is played when there is no run."""
    question: str = ""
    """Question id; empty = drawn with the seed."""
    seed: Natural = 0
    """Draws the question."""
    split: str = "validation"
    """Split that the question comes from."""


def play(words: list[str], console: Console) -> int:
    """Play one episode and print it turn by turn."""
    options = parse(PlayOptions, words, "play")
    if options.run:
        _watch(options, console)
    else:
        _by_hand(options, console)
    return 0


def _watch(options: PlayOptions, console: Console) -> None:
    """The run's policy, in the rollout that training uses: the same prompt, template, limits and gain."""
    from a2tgpo.information_gain import score_episodes
    from a2tgpo.run_folder.load import checkpoint_named, load_run
    from a2tgpo.training.evaluate import evaluate
    from a2tgpo.training.parts import make_split
    from a2tgpo.training.questions import fixed_subset

    run = load_run(Path(options.run), checkpoint_named(options.checkpoint))
    split = make_split(run.recipe, run.policy, run.engine, options.split, num_envs=1)
    question = (
        split.rollout.env.pool.find(options.question)
        if options.question
        else fixed_subset(split.questions, 1, options.seed)[0]
    )
    episode = score_episodes(
        run.policy, evaluate(split.rollout, [question], seed=options.seed).episodes, run.scoring
    ).episodes[0]
    decode = run.policy.tokenizer.decode
    for number, turn in enumerate(episode.turns):
        title = f"question {question.id}" if number == 0 else "observation"
        gain = None if number == 0 else episode.turns[number - 1].information_gain
        _panel(console, decode(list(turn.context_ids)), title, gain=gain, whose="the policy's")
        _panel(console, decode(list(turn.action_ids)), f"turn {number}: {turn.action}", style="cyan")
    if episode.closing_ids:
        gain = episode.turns[-1].information_gain
        _panel(console, decode(list(episode.closing_ids)), "observation", gain=gain, whose="the policy's")
    _ending(console, question, str(episode.stop), episode.outcome, episode.em, episode.f1)
    if episode.error:
        say(console, f"it failed: {printable(episode.error)}")


def _by_hand(options: PlayOptions, console: Console) -> None:
    recipe = load_recipe(options.recipe)
    check_id(recipe.environment.id)
    env = gymnasium.make(recipe.environment.id, split=options.split, **recipe.environment.arguments())
    text, info = env.reset(seed=options.seed, options={"question_id": options.question} if options.question else None)
    _panel(console, text, f"question {info['question_id']}")
    say(console, "Write one action, for example <search> words </search> or <answer> words </answer>.")
    terminated = truncated = False
    while not (terminated or truncated):
        action = _asked(console)
        text, reward, terminated, truncated, info = env.step(action)
        _panel(console, action, f"turn {info['turn']}: {info['action']}", style="cyan")
        if text:
            gain = info["information_gain"]
            _panel(console, text, "observation", gain=gain if gain == gain else None, whose="the evidence scorer's")
    question = env.get_wrapper_attr("pool").find(info["question_id"])
    _ending(console, question, str(info["stop"]), float(reward), info["em"], info["f1"])


def _asked(console: Console) -> str:
    try:
        return console.input("> ", markup=False)
    except EOFError as error:
        raise ConfigError(
            "input: it ended before the episode did; expected one action a line until an answer or the last turn"
        ) from error


def _panel(
    console: Console, text: str, title: str, *, style: str = "none", gain: float | None = None, whose: str = ""
) -> None:
    """Text of a model, a passage or a person in a frame, with the gain of what led to it, if it has one."""
    subtitle = None if gain is None else Text(f"information gain {gain:+.2f} nats ({whose})")
    console.print(Panel(Text(printable(text)), title=Text(printable(title)), style=style, subtitle=subtitle))


def _ending(console: Console, question: Question, stop: str, outcome: float, em: float, f1: float) -> None:
    gold = printable(", ".join(question.answers))
    say(console, f"{stop}: outcome {outcome:g}, EM {em:g}, F1 {f1:.2f}; gold answers: {gold}")
