"""The training loop. It names no algorithm: rollout → gain → table → credit → update, and two runs differ in the credit only."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from a2tgpo.batch import Credit, TurnTable, collate
from a2tgpo.build import Parts, QuestionStream, build
from a2tgpo.checkpoint import checkpoints, load_checkpoint, optimizer_tensors, restore_optimizer, save_checkpoint
from a2tgpo.config import Recipe, to_toml
from a2tgpo.episode import Episode
from a2tgpo.evaluate import Evaluation, episode_metrics, evaluate, fixed_subset
from a2tgpo.folder import claim
from a2tgpo.information_gain import Measurement, measure
from a2tgpo.manifest import manifest
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
    step: int = 0
    """Training steps done."""

    def train(self) -> None:
        """Train to the end of the recipe, evaluating and saving on the way."""
        stream = QuestionStream(self.parts.train.questions, self.recipe.rollout.questions, self.recipe.seed)
        if self.step == 0:
            self.evaluate()
        while self.step < self.recipe.training.steps:
            clock = _Clock()
            episodes = self.parts.train.rollout(self.tasks(stream), self.recipe.rollout.temperature)
            clock.lap("rollout")
            played = [episode for episode in episodes if not episode.failed]
            tokens = collate(played, self.parts.policy.pad_token_id, self.parts.policy.device)
            measured = self.measure(played, wanted=self.parts.algorithm.needs_information_gain or self.recipe.information_gain.log)
            clock.lap("gain")
            table = self.parts.algorithm.tabulate(measured.episodes)
            credit = self.parts.algorithm(table)
            updated = self.updater(Sample(tokens, measured.scores.logprobs, table.group, credit), self.step)
            self.parts.engine.load_weights(self.parts.policy, version=self.step + 1)
            clock.lap("update")
            self.step += 1
            values = episode_metrics(measured.episodes) | credit_metrics(table, credit) | updated | clock.laps
            self.record("train", values | {"failed": 1 - len(played) / len(episodes)})
            self.keep(measured.episodes, credit)

    def tasks(self, stream: QuestionStream) -> list[Task]:
        """The step's episodes; each has a seed of its own that depends on run seed, step and place only."""
        size = self.recipe.rollout.group_size
        first = (self.recipe.seed * 100_000 + self.step) * 100_000
        questions = enumerate(stream.at(self.step))
        return [Task(group, question.id, first + group * size + place) for group, question in questions for place in range(size)]

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
        """Greedy score on the same held-out questions every time."""
        clock = _Clock()
        split, settings = self.parts.validation, self.recipe.training
        questions = fixed_subset(split.questions, settings.evaluate_questions, seed=0)
        played = evaluate(split.rollout, questions, seed=0)
        result = Evaluation(played.questions, self.measure(played.episodes, wanted=True).episodes)
        clock.lap("evaluation")
        self.record("evaluation", result.metrics | clock.laps)
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
        described = manifest(recipe, splits, parts.train.rollout.env.corpus_hash, parts.policy.weights_hash())
        write_text(folder / "manifest.json", json.dumps(described, indent=1, sort_keys=True) + "\n")
        (folder / "evaluations").mkdir(exist_ok=True)
        updater = Updater(parts.policy, recipe.update, parts.algorithm.loss, recipe.training.steps, recipe.seed)
        step = _restore(folder, parts, updater)
        run = Run(recipe, folder, parts, updater, RunLog(folder), progress, step)
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


def credit_metrics(table: TurnTable, credit: Credit) -> dict[str, float]:
    """What the algorithm made of the batch, and the gain per turn index (`gain_turn_0`, …)."""
    varied = torch.zeros(table.num_groups).index_add(0, table.group, (credit.advantage != 0).any(dim=1).float()) > 0
    per_turn = {
        f"gain_turn_{turn}": float(table.information_gain[:, turn][table.scored[:, turn]].mean())
        for turn in range(table.mask.shape[1])
        if bool(table.scored[:, turn].any())
    }
    scale, advantage = credit.clip_scale[table.mask], credit.advantage[table.mask]
    return {
        "informative_groups": float(varied.float().mean()),
        "advantage_abs": float(advantage.abs().mean()),
        "clip_scale_min": float(scale.min()),
        "clip_scale_max": float(scale.max()),
    } | per_turn


@dataclass
class _Clock:
    """Seconds between laps."""

    start: float = field(default_factory=time.perf_counter)
    laps: dict[str, float] = field(default_factory=dict)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"seconds_{name}"] = now - self.start
        self.start = now
