"""`a2tgpo evaluate`: score a finished run, or a model folder under a recipe, on held-out questions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from a2tgpo.build import limit_threads
from a2tgpo.commands.options import parse
from a2tgpo.config import ConfigError, load_recipe


@dataclass(frozen=True)
class EvaluateOptions:
    """What is scored, and on what."""

    model: Annotated[str, tyro.conf.Positional]
    """Folder of a finished run (its model and its recipe are used), or a model folder together with --recipe."""
    recipe: str = ""
    """Recipe whose environment is used for a model folder."""
    split: str = "test"
    questions: int = 400
    """Questions at most: a seeded draw from the split."""
    temperature: float = 0.0
    """0 = greedy and deterministic."""
    seed: int = 0
    output: Path | None = None
    """Folder for the results per question (evaluation.jsonl) and the means (evaluation.json)."""


def evaluate(words: list[str], console: Console) -> int:
    """Play one episode per question and print the means."""
    options = parse(EvaluateOptions, words, "evaluate")
    folder = Path(options.model)
    is_run = (folder / "config.toml").is_file()
    if not is_run and not options.recipe:
        raise ConfigError(f"model: got {options.model!r}, which has no config.toml of a run; give a run's folder, or a model folder and --recipe NAME")
    recipe = load_recipe(options.recipe or folder / "config.toml")
    limit_threads(recipe.model.threads)
    from a2tgpo.build import build_split
    from a2tgpo.evaluate import evaluate as play
    from a2tgpo.evaluate import fixed_subset

    split = build_split(recipe, folder / "model" if is_run else folder, options.split, min(options.questions, 256))
    result = play(split.rollout, fixed_subset(split.questions, options.questions, options.seed), seed=options.seed, temperature=options.temperature)
    table = Table(title=f"{options.model}: {len(result.questions)} questions of {options.split}, temperature {options.temperature:g}")
    table.add_column("metric")
    table.add_column("mean", justify="right")
    for name, value in result.metrics.items():
        if value == value:  # NaN: nothing to average
            table.add_row(name, f"{value:.3f}")
    console.print(table)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in result.rows())
        (options.output / "evaluation.jsonl").write_text(rows, encoding="utf-8")
        (options.output / "evaluation.json").write_text(json.dumps({name: value for name, value in result.metrics.items() if value == value}, indent=1))
        console.print(f"written: {options.output / 'evaluation.jsonl'}")
    return 0
