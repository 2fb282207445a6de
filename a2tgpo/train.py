"""The training loop. It names no algorithm: rollout → gain → table → credit → update, and two runs differ in the credit only."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from a2tgpo.algorithms import Algorithm
from a2tgpo.batch import Credit, TurnTable, collate
from a2tgpo.build import Parts, QuestionStream, build, corpus_hash
from a2tgpo.checkpoint import checkpoints, load_checkpoint, optimizer_tensors, restore_optimizer, save_checkpoint
from a2tgpo.config import Recipe, to_toml
from a2tgpo.envs import Question
from a2tgpo.episode import Episode
from a2tgpo.evaluate import Evaluation, episode_metrics, evaluate, fixed_subset
from a2tgpo.folder import claim
from a2tgpo.gain_metrics import gain_metrics
from a2tgpo.information_gain import Measurement, measure
from a2tgpo.manifest import manifest
from a2tgpo.policy import Policy
from a2tgpo.rollout import Task
from a2tgpo.runlog import RunLog, rewind_metrics, write_text
from a2tgpo.update import Sample, Updater

Progress = Callable[[str, int, Mapping[str, float]], None]
"""Called with (`train` or `evaluation`, step, metrics)."""


@dataclass
class Run:
    """A training run in its folder."""

    recipe: Recipe
    folder: Path
    parts: Parts
    updater: Updater
    log: RunLog
    progress: Progress
    reference: Policy | None = None
    """The policy that training started from, where the loss asks for the distance to it."""
    step: int = 0
    """Training steps done."""

    def train(self) -> None:
        """Train to the end of the recipe, evaluating and saving on the way."""
        stream = QuestionStream(self.parts.train.questions, self.recipe.rollout.questions, self.recipe.seed)
        if self.step == 0:
            self.evaluate()
        while self.step < self.recipe.training.steps:
            clock = _Clock()
            episodes = self.collect(stream)
            clock.lap("rollout")
            played = [episode for episode in episodes if not episode.failed]
            tokens = collate(played, self.parts.policy.pad_token_id, self.parts.policy.device)
            measured = self.measure(played, wanted=self.parts.algorithm.needs_information_gain or self.recipe.information_gain.log)
            clock.lap("gain")
            table = self.parts.algorithm.tabulate(measured.episodes)
            credit = self.parts.algorithm(table)
            reference = None if self.reference is None else measure(self.reference, played, None).scores.logprobs
            updated = self.updater(Sample(tokens, measured.scores.logprobs, table.group, credit, reference), self.step)
            self.parts.engine.load_weights(self.parts.policy, version=self.step + 1)
            clock.lap("update")
            self.step += 1
            described = episode_metrics(measured.episodes) | gain_metrics(measured) | credit_metrics(table, credit)
            self.record("train", described | {"failed": 1 - len(played) / len(episodes)} | updated | clock.laps)
            self.keep(measured.episodes, credit)

    def collect(self, stream: QuestionStream) -> list[Episode]:
        """The step's episodes. An algorithm that allows it has groups that teach nothing replaced by other questions, a bounded number of times."""
        episodes = self.parts.train.rollout(self.tasks(stream.at(self.step), attempt=0), self.recipe.rollout.temperature)
        for attempt in range(1, self.parts.algorithm.max_resamples + 1):
            useless = uninformative_groups(self.parts.algorithm, episodes)
            if not useless:
                break
            tasks = [task for task in self.tasks(stream.spare(self.step, attempt), attempt) if task.group in useless]
            fresh = self.parts.train.rollout(tasks, self.recipe.rollout.temperature)
            episodes = sorted([*(episode for episode in episodes if episode.group not in useless), *fresh], key=lambda episode: episode.group)
        return episodes

    def tasks(self, questions: Sequence[Question], attempt: int) -> list[Task]:
        """Episodes for the questions; each has a seed of its own that depends on run seed, step, attempt and place only."""
        size = self.recipe.rollout.group_size
        first = ((self.recipe.seed * 100_000 + self.step) * 100 + attempt) * 100_000
        return [Task(group, question.id, first + group * size + place) for group, question in enumerate(questions) for place in range(size)]

    def measure(self, episodes: Sequence[Episode], *, wanted: bool) -> Measurement:
        """Old log-probabilities of the batch and, where wanted, the information gain of its turns, in one pass."""
        settings = self.recipe.information_gain
        return measure(
            self.parts.policy,
            episodes,
            self.parts.scaffold if wanted else None,
            aliases=settings.aliases,
            measure=settings.measure,
            micro_batch_tokens=self.recipe.update.micro_batch_tokens,
        )

    def evaluate(self) -> Evaluation:
        """Greedy score on the same held-out questions every time, and on as many training questions at the end (`em_train`: what is remembered)."""
        clock = _Clock()
        settings, sets = self.recipe.training, {"validation": self.parts.validation, "train": self.parts.train}
        questions = {name: fixed_subset(split.questions, settings.evaluate_questions, seed=0) for name, split in sets.items()}
        played = evaluate(self.parts.validation.rollout, questions["validation"], seed=0)
        result = Evaluation(played.questions, self.measure(played.episodes, wanted=True).episodes)
        metrics = result.metrics
        if self.step == settings.steps:
            metrics["em_train"] = evaluate(self.parts.train.rollout, questions["train"], seed=0).metrics["em"]
        clock.lap("evaluation")
        self.record("evaluation", metrics | clock.laps)
        rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in result.rows())
        write_text(self.folder / "evaluations" / f"step-{self.step:06d}.jsonl", rows)
        return result

    def keep(self, episodes: Sequence[Episode], credit: Credit) -> None:
        """What is due after a step: sampled episodes, evaluation, checkpoint."""
        settings, last = self.recipe.training, self.step == self.recipe.training.steps
        if last or self.step % settings.log_episodes_every == 0:
            self.log.episodes(f"step-{self.step:06d}", episodes, self.parts.policy.tokenizer, credit)
        if last or self.step % settings.evaluate_every == 0:
            self.evaluate()
        if last or self.step % settings.checkpoint_every == 0:
            optimizer = optimizer_tensors(self.updater.optimizer, self.updater.parameter_names)
            weights = self.parts.policy.model.state_dict()
            save_checkpoint(self.folder / "checkpoints", self.step, weights, optimizer, {}, settings.keep_checkpoints)

    def record(self, kind: str, values: Mapping[str, float]) -> None:
        self.log.metrics(kind, self.step, values)
        self.progress(kind, self.step, values)


def train(recipe: Recipe, folder: Path, model_folder: Path, progress: Progress) -> None:
    """Train from the weights in `model_folder`, or continue the run that `folder` holds; a finished run is left as it is.

    Raises:
        ConfigError: if the recipe cannot be built, or the folder is in use or not writable.
        NumericalError: on a number that must not be used; the last checkpoint is intact.
    """
    with claim(folder):
        if (folder / "finished").exists():
            return
        torch.manual_seed(recipe.seed)
        parts = build(recipe, model_folder)
        write_text(folder / "config.toml", to_toml(recipe))
        splits = {"train": parts.train.questions, "validation": parts.validation.questions}
        described = manifest(recipe, splits, corpus_hash(parts.train.rollout.env), parts.policy.weights_hash())
        write_text(folder / "manifest.json", json.dumps(described, indent=1, sort_keys=True) + "\n")
        (folder / "evaluations").mkdir(exist_ok=True)
        updater = Updater(parts.policy, recipe.update, parts.algorithm.loss, recipe.training.steps, recipe.seed)
        reference = Policy.load(model_folder, parts.policy.model.dtype, parts.policy.device) if parts.algorithm.loss.kl != "none" else None
        step = _restore(folder, parts, updater)
        run = Run(recipe, folder, parts, updater, RunLog(folder), progress, reference, step)
        try:
            run.train()
        finally:
            run.log.close()
            parts.engine.close()
        parts.policy.save(folder / "model")
        write_text(folder / "finished", "")


def _restore(folder: Path, parts: Parts, updater: Updater) -> int:
    """Continue from the newest checkpoint, if there is one; returns the steps done."""
    saved = checkpoints(folder / "checkpoints")
    if not saved:
        rewind_metrics(folder, -1)
        return 0
    checkpoint = load_checkpoint(saved[-1], parts.policy.device)
    parts.policy.model.load_state_dict(checkpoint.weights)
    restore_optimizer(updater.optimizer, updater.parameter_names, checkpoint.optimizer)
    parts.engine.load_weights(parts.policy, version=checkpoint.step)
    rewind_metrics(folder, checkpoint.step)
    return checkpoint.step


def uninformative_groups(algorithm: Algorithm, episodes: Sequence[Episode]) -> set[int]:
    """Groups that the algorithm cannot learn from, judged by the raw outcome (shaping could make any two episodes differ)."""
    played = [replace(episode, outcome=episode.info["outcome"]) for episode in episodes if not episode.failed]
    useful = algorithm.is_informative(algorithm.tabulate(played)).tolist() if played else []
    in_table = list(dict.fromkeys(episode.group for episode in played))
    informative = {group for group, use in zip(in_table, useful, strict=True) if use}
    return {episode.group for episode in episodes} - informative


def credit_metrics(table: TurnTable, credit: Credit) -> dict[str, float]:
    """What the algorithm made of the batch: share of groups with any credit, its size, and the spread of the clip ranges."""
    varied = torch.zeros(table.num_groups).index_add(0, table.group, (credit.advantage != 0).any(dim=1).float()) > 0
    scale, advantage = credit.clip_scale[table.mask], credit.advantage[table.mask]
    return {
        "informative_groups": float(varied.float().mean()),
        "advantage_abs": float(advantage.abs().mean()),
        "clip_scale_min": float(scale.min()),
        "clip_scale_max": float(scale.max()),
    }


@dataclass
class _Clock:
    """Seconds between laps."""

    start: float = field(default_factory=time.perf_counter)
    laps: dict[str, float] = field(default_factory=dict)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"seconds_{name}"] = now - self.start
        self.start = now
