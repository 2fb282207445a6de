"""The training loop. It names no algorithm: rollout → gain → table → credit → update, and two runs differ in the credit
only.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from a2tgpo.algorithms import Algorithm
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.config import Recipe
from a2tgpo.envs import Question
from a2tgpo.episode import Episode
from a2tgpo.errors import NumericalError, RolloutError
from a2tgpo.files import write_text
from a2tgpo.information_gain import measure
from a2tgpo.information_gain.metrics import gain_metrics
from a2tgpo.run_folder.lock import claim
from a2tgpo.run_folder.resume import check_same_recipe
from a2tgpo.training.evaluate import episode_metrics
from a2tgpo.training.parts import QuestionStream
from a2tgpo.training.rollout import Task
from a2tgpo.training.run import Clock, Progress, Run, open_run
from a2tgpo.training.sampler_gap import check_sampler, mismatch_metrics
from a2tgpo.training.update import TrainingBatch

log = logging.getLogger(__name__)


def train(recipe: Recipe, folder: Path, model_folder: Path, progress: Progress) -> bool:
    """Train from the weights in `model_folder`, or continue the run that `folder` holds; a finished run is left as it
    is.

    Returns:
        True if the run is finished, False if SIGTERM stopped it; the same call goes on.

    Raises:
        ConfigError: if the recipe cannot be built, or the folder is in use, not writable, or holds a run of another
            recipe.
        NumericalError: on a number that must not be used; the last checkpoint is intact and the step's episodes are in
            the run's folder.
    """
    with claim(folder):
        check_same_recipe(recipe, folder)
        if (folder / "finished").exists():
            return True
        with open_run(recipe, folder, model_folder, progress) as run:
            stream = QuestionStream(run.parts.train.questions, recipe.rollout.questions, recipe.seed)
            if run.step == 0:
                run.evaluate()
            while run.step < recipe.training.steps and not run.stopping:
                train_step(run, stream)
            if run.step < recipe.training.steps:
                return False
            run.parts.policy.save(folder / "model")
        write_text(folder / "finished", "")
        return True


def train_step(run: Run, stream: QuestionStream) -> None:
    """One batch of episodes and what the policy learns from it."""
    parts, clock = run.parts, Clock()
    episodes = collect(run, stream)
    parts.engine.sleep()
    clock.lap("rollout")
    played = [episode for episode in episodes if not episode.failed]
    with kept_if_broken(run, played):
        measured = run.measure(played, wanted=parts.algorithm.needs_information_gain or run.recipe.information_gain.log)
        check_sampler(measured.tokens, measured.scores.logprobs, parts.policy.dtype, run.recipe.rollout.temperature)
        clock.lap("gain")
        table = parts.algorithm.tabulate(measured.episodes)
        credit = parts.algorithm(table)
        reference = None if run.reference is None else measure(run.reference, played, None).scores.logprobs
        updated = run.updater(
            TrainingBatch(measured.tokens, measured.scores.logprobs, table.group, credit, reference), run.step
        )
    parts.engine.load_weights(parts.policy, version=run.step + 1)
    clock.lap("update")
    run.step += 1
    failed = {
        "failed": 1 - len(played) / len(episodes),
        "failed_groups": run.recipe.rollout.questions - float(table.num_groups),
    }
    entropy = {"entropy": float(measured.scores.entropy[measured.tokens.action_mask].mean())}
    mismatch = mismatch_metrics(measured.tokens, measured.scores.logprobs, parts.algorithm.loss.importance_cap)
    metrics = (
        episode_metrics(measured.episodes)
        | failed
        | gain_metrics(measured)
        | mismatch
        | credit_metrics(table, credit)
        | entropy
        | updated
        | clock.laps
    )
    metrics |= run.probe_time(measured, clock.laps)
    run.record("train", metrics)
    run.watchdog(metrics)
    run.keep(measured, credit)


@contextmanager
def kept_if_broken(run: Run, episodes: Sequence[Episode]) -> Iterator[None]:
    """Write the step's episodes down for inspection when a number breaks the step, and say where."""
    try:
        yield
    except NumericalError as error:
        name = f"broken-step-{run.step:06d}"
        run.log.episodes(name, episodes, run.parts.policy.tokenizer)
        raise NumericalError(
            f"{error}; step {run.step}, its episodes: {run.folder / 'episodes' / name}.jsonl"
        ) from error


def collect(run: Run, stream: QuestionStream) -> list[Episode]:
    """The step's episodes. An algorithm that allows it has groups that teach nothing replaced by other questions, a
    bounded number of times.
    """
    rollout, temperature = run.parts.train.rollout, run.recipe.rollout.temperature
    episodes = rollout(tasks_of(run, stream.at(run.step), attempt=0), temperature)
    for attempt in range(1, run.parts.algorithm.max_resamples + 1):
        useless = uninformative_groups(run.parts.algorithm, episodes)
        if not useless:
            break
        tasks = [task for task in tasks_of(run, stream.spare(run.step, attempt), attempt) if task.group in useless]
        kept = [episode for episode in episodes if episode.group not in useless]
        episodes = sorted([*kept, *rollout(tasks, temperature)], key=lambda episode: episode.group)
    return _without_lost_groups(run, stream, episodes)


def _without_lost_groups(run: Run, stream: QuestionStream, episodes: list[Episode]) -> list[Episode]:
    """Groups that failed as a whole are rolled out once more, so that a passing fault does not shrink the batch.

    Raises:
        RolloutError: if every episode of the step failed, also the second time.
    """
    lost = {episode.group for episode in episodes} - {episode.group for episode in episodes if not episode.failed}
    if lost:
        log.warning(
            "rollout: every episode of %d questions failed (%s); rolling them out once more",
            len(lost),
            episodes[0].error,
        )
        tasks = [task for task in tasks_of(run, stream.at(run.step), attempt=99) if task.group in lost]
        kept = [episode for episode in episodes if episode.group not in lost]
        episodes = sorted(
            [*kept, *run.parts.train.rollout(tasks, run.recipe.rollout.temperature)], key=lambda episode: episode.group
        )
    if all(episode.failed for episode in episodes):
        raise RolloutError(
            f"rollout: every episode of step {run.step} failed ({episodes[0].error}), expected at least one"
            f" that was played; mend the retriever and go on with a2tgpo train --resume {run.folder}"
        )
    return episodes


def tasks_of(run: Run, questions: Sequence[Question], attempt: int) -> list[Task]:
    """Episodes for the questions; each has a seed of its own that depends on run seed, step, attempt and place only."""
    size = run.recipe.rollout.group_size
    first = ((run.recipe.seed * 100_000 + run.step) * 100 + attempt) * 100_000
    return [
        Task(group, question.id, first + group * size + place)
        for group, question in enumerate(questions)
        for place in range(size)
    ]


def uninformative_groups(algorithm: Algorithm, episodes: Sequence[Episode]) -> set[int]:
    """Groups that the algorithm cannot learn from, judged by the score (shaping could make any two episodes
    differ).
    """
    played = [replace(episode, outcome=episode.score) for episode in episodes if not episode.failed]
    useful = algorithm.is_informative(algorithm.tabulate(played)).tolist() if played else []
    in_table = list(dict.fromkeys(episode.group for episode in played))
    informative = {group for group, use in zip(in_table, useful, strict=True) if use}
    return {episode.group for episode in episodes} - informative


def credit_metrics(table: TurnTable, credit: Credit) -> dict[str, float]:
    """What the algorithm made of the batch: share of groups with any credit, its size, and the spread of the clip
    ranges.
    """
    varied = torch.zeros(table.num_groups).index_add(0, table.group, (credit.advantage != 0).any(dim=1).float()) > 0
    scale, advantage = credit.clip_scale[table.mask], credit.advantage[table.mask]
    return {
        "informative_groups": float(varied.float().mean()),
        "advantage_abs": float(advantage.abs().mean()),
        "clip_scale_min": float(scale.min()),
        "clip_scale_max": float(scale.max()),
    }
