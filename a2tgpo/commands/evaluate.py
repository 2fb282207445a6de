"""`a2tgpo evaluate`: score a finished run, a model folder or a reference agent on held-out questions of any data
set.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from a2tgpo.commands.evaluated_sets import AskedSet, asked_sets
from a2tgpo.commands.options import parse
from a2tgpo.config import Recipe, load_recipe
from a2tgpo.config.settings import Count, Natural, NotNegative
from a2tgpo.display.lines import say
from a2tgpo.display.tables import show, table
from a2tgpo.errors import ConfigError
from a2tgpo.files import nulls, output_folder

if TYPE_CHECKING:
    from a2tgpo.run_folder.load import LoadedRun
    from a2tgpo.studies.scorecard import PartScores
    from a2tgpo.training.parts import Split

SIDE_BY_SIDE = 256
"""Episodes in flight together."""
QUESTIONS = 400
"""Questions per data set unless asked otherwise."""
SHOWN_FROM = 20
"""Questions from which a question type gets a line in the terminal."""
DIGITS = {"searches": 2, "turns": 2, "tokens": 0}


@dataclass(frozen=True)
class EvaluateOptions:
    """What is scored, and on what."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")] = ""
    """Folder of a finished run (its model and its recipe are used), or a model folder together with --recipe; may be
    left out for an agent without a model.
    """
    checkpoint: str = "last"
    """Of a run: `last`, `best` by held-out outcome, or the number of a step whose checkpoint is kept."""
    agent: str = ""
    """Reference agent to score instead of the policy itself, see `a2tgpo baseline table`."""
    recipe: str = ""
    """Recipe whose environment and limits are used for a model folder or an agent."""
    datasets: tuple[str, ...] = ()
    """Question files or folders, or ids like HotpotQA, each perhaps with its split (`HotpotQA:validation`); without
    any, the recipe's own questions.
    """
    suite: str = ""
    """Public sets by one word, each with the split that papers report: search-qa (seven sets), multi-hop or
    single-hop.
    """
    published: str = ""
    """Model whose published figures are shown beside those of a suite, e.g. Qwen3-4B; by default the recipe's."""
    corpus: str = ""
    """Corpus for --datasets and --suite; by default the paragraphs that came with the questions."""
    split: str = ""
    """By default `test`, for --datasets `all`."""
    questions: Natural = 0
    """Questions per data set at most, a seeded draw from the split; 0 = 400, with --suite all."""
    samples: Count = 1
    """Episodes per question, for pass@k and mean@k; needs a temperature above 0."""
    temperature: NotNegative = 0.0
    """0 = greedy and deterministic."""
    seed: Natural = 0
    """Of the drawn questions and of sampling."""
    output: Path | None = None
    """Folder for the results: evaluation.jsonl (per question), evaluation.csv (per part), evaluation.json."""


def evaluate(words: list[str], console: Console) -> int:
    """Play the questions of every data set and print the means."""
    options = parse(EvaluateOptions, words, "evaluate")
    recipe, model = _recipe_and_model(options)
    if options.samples > 1 and options.temperature == 0:
        raise ConfigError(
            f"--samples: got {options.samples} at temperature {options.temperature:g}, expected 1, or more at"
            " --temperature above 0"
        )
    if options.output is not None:
        output_folder("--output", options.output)
    sets = asked_sets(recipe, options.datasets, options.suite, options.split, options.corpus)
    from a2tgpo.training.parts import limit_threads

    limit_threads(recipe.model.threads)
    from a2tgpo.run_folder.load import load_model
    from a2tgpo.studies.averages import averages
    from a2tgpo.studies.scorecard import fingerprint, lines_of, write_scorecard

    run = None if model is None else load_model(recipe, model)
    rows = {asked.name: _rows(options, asked, run) for asked in sets}
    lines = [line for name, found in rows.items() for line in lines_of(name, found)]
    who = " ".join(word for word in (options.agent, options.model) if word)
    samples = f"{options.samples} sample{'s' if options.samples > 1 else ''}"
    show(console, _table(lines, f"{who}, temperature {options.temperature:g}, {samples} per question"))
    overall = averages(lines, {asked.name: asked.kind for asked in sets if asked.kind})
    if overall:
        head = ["EM, average over", "n", "samples", "sets"]
        cells = [[one.name, str(one.questions), f"{one.over_samples:.4f}", f"{one.over_sets:.4f}"] for one in overall]
        show(console, table(head, cells, caption="samples: every question counts alike; sets: every set does"))
    if options.suite:
        _print_published(options, recipe, sets, lines, console)
    for line in lines:
        if line.part == "all" and options.samples > 1:
            passes = "  ".join(f"{name} {value:.3f}" for name, value in line.values.items() if name.startswith("pass@"))
            say(console, f"{line.dataset}: mean@{options.samples} {line.values['em']:.3f}  {passes}")
    for name, found in rows.items():
        _print_calibration(name, found, console)
        say(console, f"{name}: fingerprint {fingerprint(found)} (equal results give an equal one)")
    if options.output is not None:
        described = {
            "model": options.model,
            "agent": options.agent,
            "temperature": options.temperature,
            "seed": options.seed,
            "samples": options.samples,
            "suite": options.suite,
            "splits": {asked.name: asked.split for asked in sets},
            "averages": [asdict(one) for one in overall],
        }
        write_scorecard(options.output, rows, described)
        say(console, f"written: {options.output / 'evaluation.jsonl'}, .csv, .json")
    return 0


def _recipe_and_model(options: EvaluateOptions) -> tuple[Recipe, Path | None]:
    if not options.model and options.agent:
        return load_recipe(options.recipe or "quickstart"), None
    from a2tgpo.run_folder.load import checkpoint_named, is_run, model_folder, recipe_file

    folder = Path(options.model)
    if not options.model or (not is_run(folder) and not options.recipe):
        raise ConfigError(
            f"model: got {options.model!r}, which has no config.toml of a run; give a run's folder, or a model folder"
            " and --recipe NAME"
        )
    if not is_run(folder):
        return load_recipe(options.recipe), folder
    found = model_folder(folder, checkpoint_named(options.checkpoint))
    return load_recipe(options.recipe or recipe_file(folder)), found


def _rows(options: EvaluateOptions, asked: AskedSet, run: "LoadedRun | None") -> list[dict[str, Any]]:
    from a2tgpo.training.parts import make_env, make_split
    from a2tgpo.training.questions import fixed_subset

    most = options.questions or (sys.maxsize if options.suite else QUESTIONS)
    number = min(most, SIDE_BY_SIDE)
    if run is None:
        env = make_env(asked.recipe, asked.split, number)
        return _agent_rows(
            options, [question.id for question in fixed_subset(env.questions, most, options.seed)], env, None
        )
    split = make_split(asked.recipe, run.policy, run.engine, asked.split, number)
    questions = fixed_subset(split.questions, most, options.seed)
    if options.agent:
        from a2tgpo.baselines import Voice

        rollout = split.rollout
        voice = Voice(rollout.engine, rollout.chat, rollout.max_episode_tokens, temperature=options.temperature)
        return _agent_rows(options, [question.id for question in questions], rollout.env, voice)
    return _policy_rows(options, run, split, questions)


def _agent_rows(options: EvaluateOptions, question_ids: list[str], env: Any, voice: Any) -> list[dict[str, Any]]:
    from a2tgpo.baselines import play
    from a2tgpo.training.rollout import check_played

    rows = []
    for sample in range(options.samples):
        played = play(options.agent, env, question_ids, options.seed + sample, voice)
        check_played(played, 0.5, f"the agent {options.agent!r}", "then evaluate again")
        rows += [episode.row() | {"sample": sample} for episode in played if not episode.failed]
    return rows


def _policy_rows(
    options: EvaluateOptions, run: "LoadedRun", split: "Split", questions: Sequence[Any]
) -> list[dict[str, Any]]:
    """The policy's episodes, with the gold answer's probability at their end."""
    from a2tgpo.information_gain.calibration import final_gold_probabilities
    from a2tgpo.training.evaluate import evaluate as play
    from a2tgpo.training.rollout import check_played

    most = run.recipe.rollout.max_failed
    rows = []
    for sample in range(options.samples):
        played = play(split.rollout, questions, seed=options.seed + sample, temperature=options.temperature)
        check_played(played.episodes, most, "the evaluation", "then evaluate again")
        answered = [episode for episode in played.episodes if not episode.failed]
        gold = final_gold_probabilities(run.policy, answered, run.scoring)
        rows += [
            row | {"sample": sample, "gold_probability": value} for row, value in zip(played.rows(), gold, strict=True)
        ]
    return [nulls(row) for row in rows]


def _print_published(
    options: EvaluateOptions, recipe: Recipe, sets: Sequence[AskedSet], lines: "Sequence[PartScores]", console: Console
) -> None:
    """Published figures for the same model under a line of their own, with the columns of the protocol that differ."""
    from a2tgpo.baselines.published import Protocol, beside, described, models, published

    model = options.published or Path(recipe.model.source).name
    ours = Protocol(
        corpus=recipe.environment.corpus or options.corpus,  # what a server holds is not known
        retriever="" if "://" in recipe.environment.retriever else recipe.environment.retriever,
        top_k=str(recipe.environment.top_k),
        turns=str(recipe.environment.max_searches),
        decoding=f"sampled, temperature {options.temperature:g}" if options.temperature else "greedy",
        training_data="" if options.agent else _trained_on(recipe),
    )
    scores = {line.dataset: 100 * line.values["em"] for line in lines if line.part == "all"}
    own = [options.agent or Path(options.model).name, *(f"{score:.1f}" for score in scores.values()), "here", "–"]
    head, rows = beside(scores, ours, published(model))
    if not rows:
        say(console, f"no published figures for {model!r}; --published takes one of {', '.join(models())}")
        return
    show(console, table(head, [own], title=f"EM in percent, here ({described(ours)})"))
    caption = "in the order of their sources; ≠ differs from the evaluation here, ? may differ: not ranked together"
    show(console, table(head, rows, title=f"published for {model}, not comparable as they stand", caption=caption))


def _trained_on(recipe: Recipe) -> str:
    """The training set as papers call it; empty for others."""
    from a2tgpo.envs.data.suites import public_set

    known = public_set(recipe.environment.id.rpartition("/")[2].removesuffix("-v0"))
    return known.title if known else ""


def _table(lines: "Sequence[PartScores]", title: str) -> Table:
    """Fits into 80 columns with one data set; the data sets' names are a column only where there are several."""
    names = list(dict.fromkeys(name for line in lines for name in line.values if not name.startswith(("pass@", "em_"))))
    lines = [line for line in lines if not line.part.startswith("type ") or line.questions >= SHOWN_FROM]
    several = len({line.dataset for line in lines}) > 1
    caption = (
        f"means over n questions, ± half of EM's 95 % interval; types with fewer than {SHOWN_FROM} questions only in"
        " --output"
    )
    rows = [[line.part, str(line.questions), *(_cell(line, name) for name in names)] for line in lines]
    if several:
        rows = [[line.dataset, *row] for line, row in zip(lines, rows, strict=True)]
    head = [*(["data set"] if several else []), "part", "n", *names]
    return table(head, rows, title=title if several else f"{lines[0].dataset}: {title}", caption=caption)


def _cell(line: "PartScores", name: str) -> str:
    value, half = line.values.get(name, math.nan), line.values.get(f"{name}_half", math.nan)
    if math.isnan(value):
        return "–"
    digits = DIGITS.get(name, 3)
    return f"{value:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _print_calibration(name: str, rows: Sequence[dict[str, Any]], console: Console) -> None:
    from a2tgpo.studies.scorecard import calibration_of

    found = calibration_of(rows)
    if found is not None:
        bins = "  ".join(f"{predicted:.2f}→{share:.2f} ({count})" for predicted, share, count in found.bins)
        text = (
            f"{name}: gold probability before the answer → share correct (episodes): {bins}; ECE"
            f" {found.expected_error:.3f}, Brier {found.brier:.3f}"
        )
        say(console, text)
