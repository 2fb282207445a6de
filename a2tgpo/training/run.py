"""A run in its folder: opened or continued, measured, evaluated, kept."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

from a2tgpo.config import Recipe, to_toml
from a2tgpo.episode import Episode
from a2tgpo.files import write_json_lines, write_text
from a2tgpo.information_gain import Scores, score_episodes
from a2tgpo.information_gain.metrics import repeated_pass_metrics
from a2tgpo.policy import Policy
from a2tgpo.policy.load import load_policy
from a2tgpo.run_folder.checkpoint import (
    Checkpoint,
    checkpoints,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from a2tgpo.run_folder.log import RunLog, rewind_metrics
from a2tgpo.run_folder.manifest import corpora_hash, manifest
from a2tgpo.run_folder.resume import check_same_inputs, write_manifest
from a2tgpo.training.evaluate import Evaluation, evaluate
from a2tgpo.training.parts import Parts, build
from a2tgpo.training.questions import fixed_subset
from a2tgpo.training.rollout import check_played
from a2tgpo.training.score import ScoredBatch, score_batch
from a2tgpo.training.step_metrics import step_metrics
from a2tgpo.training.update import Updater
from a2tgpo.training.watchdogs import Watchdog

Progress = Callable[[str, int, Mapping[str, float]], None]
"""Called with (`train` or `evaluation`, step, metrics)."""


@dataclass
class Run:
    """All state of a training run; what is not in here or in its checkpoint is a pure function of seed and step."""

    recipe: Recipe
    folder: Path
    parts: Parts
    updater: Updater
    log: RunLog
    progress: Progress
    reference: Policy | None
    """The policy that training started from, where the loss asks for the distance to it."""
    step: int = 0
    """Training steps done."""
    best_step: int = -1
    best_score: float = -1.0
    """Held-out outcome of the best evaluation after a step; its checkpoint is kept."""
    stopping: bool = False
    """Set by SIGTERM: finish the step, save, and end."""
    watchdog: Watchdog = field(default_factory=Watchdog)

    def score(self, episodes: Sequence[Episode]) -> ScoredBatch:
        """Scores and credit of a batch; information gain where the algorithm or the recipe wants it."""
        algorithm = self.parts.algorithm
        wanted = algorithm.needs_information_gain or self.recipe.information_gain.log
        scoring = self.parts.scoring if wanted else self.parts.scoring.without_gain()
        return score_batch(self.parts.policy, episodes, scoring, algorithm, self.reference)

    def evaluate(self) -> Evaluation:
        """Greedy score on the same held-out questions every time.

        At both ends also the score when sampling (`em_sampled`), and that on as many training questions (`em_train`),
        where a gap would mean remembering.
        """
        clock = Clock()
        settings, sets = self.recipe.training, {"validation": self.parts.validation, "train": self.parts.train}
        questions = {
            name: fixed_subset(split.questions, settings.evaluate_questions, seed=0) for name, split in sets.items()
        }
        played = evaluate(self.parts.validation.rollout, questions["validation"], seed=0)
        self.check_played(played.episodes, f"the evaluation after step {self.step}")
        scores = score_episodes(self.parts.policy, played.episodes, self.parts.scoring)
        result = Evaluation(played.questions, scores.episodes)
        metrics = result.metrics
        if self.step in (0, settings.steps):
            metrics["em_sampled"] = evaluate(
                self.parts.validation.rollout, questions["validation"], seed=0, temperature=1.0
            ).metrics["em"]
            metrics["em_train"] = evaluate(self.parts.train.rollout, questions["train"], seed=0).metrics["em"]
        clock.lap("evaluation")
        self.record("evaluation", metrics | clock.laps)
        for name, rows in (("step", result.rows()), ("failed", result.failed())):
            if rows or name == "step":
                write_json_lines(self.folder / "evaluations" / f"{name}-{self.step:06d}.jsonl", rows)
        if self.step and metrics["outcome"] > self.best_score:
            self.best_step, self.best_score = self.step, metrics["outcome"]
        return result

    @property
    def evaluation_due(self) -> bool:
        """Is the policy to be evaluated after the step just done?"""
        return self.step == self.recipe.training.steps or self.step % self.recipe.training.evaluate_every == 0

    def score_again(self, scores: Scores, seconds: Mapping[str, float]) -> dict[str, float]:
        """What the probes added to the time of the step, and what rounding does to gains: see `repeated_pass_metrics`.
        It costs some passes, so only where an evaluation is due.
        """
        if not scores.probe_tokens or not self.evaluation_due:
            return {}

        def run_pass(episodes: Sequence[Episode], probes: bool) -> Scores:
            scoring = self.parts.scoring if probes else self.parts.scoring.without_gain()
            return score_episodes(self.parts.policy, episodes, scoring)

        return repeated_pass_metrics(run_pass, scores.played, self.recipe.update.micro_batch_tokens // 4, seconds)

    def finish_step(self, batch: ScoredBatch, updated: dict[str, float], seconds: dict[str, float]) -> None:
        """Write down what the step was, and do what is due after it: sampled episodes, evaluation, checkpoint."""
        cap = self.parts.algorithm.loss.importance_cap
        metrics = step_metrics(batch, self.recipe.rollout.questions, cap) | updated | seconds
        metrics |= self.score_again(batch.scores, seconds)
        self.record("train", metrics)
        self.watchdog(metrics)
        settings, last = self.recipe.training, self.step == self.recipe.training.steps
        if last or self.step % settings.log_episodes_every == 0:
            self.log.episodes(
                f"step-{self.step:06d}",
                batch.scores.episodes,
                self.parts.policy.tokenizer,
                batch.credit,
                batch.scores.values.tolist(),
            )
        if self.evaluation_due:
            self.evaluate()
        if last or self.stopping or self.step % settings.checkpoint_every == 0 or self.best_step == self.step:
            self.save()

    def check_played(self, episodes: Sequence[Episode], what: str) -> None:
        """Raise RolloutError if more episodes failed than the recipe allows."""
        remedy = f"then continue with a2tgpo train --resume {self.folder}"
        check_played(episodes, self.recipe.rollout.max_failed, what, remedy)

    def save(self) -> None:
        """Write a checkpoint from which the run continues bit for bit."""
        tensors = optimizer_tensors(self.updater.optimizer, self.updater.parameter_names)
        state = {
            "best_step": self.best_step,
            "best_score": self.best_score,
            "skipped_updates": self.updater.skipped,
            "metrics": self.log.mark(),
        }
        keep = self.recipe.training.keep_checkpoints
        save_checkpoint(
            self.folder / "checkpoints",
            self.step,
            self.parts.policy,
            tensors,
            state,
            keep,
            protected=self.best_step,
        )

    def record(self, kind: str, values: Mapping[str, float]) -> None:
        """Write metrics down and tell whoever watches."""
        self.log.metrics(kind, self.step, values)
        self.progress(kind, self.step, values)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.parts.policy.model.load_state_dict(checkpoint.weights)
        restore_optimizer(self.updater.optimizer, self.updater.parameter_names, checkpoint.optimizer)
        self.parts.engine.load_weights(self.parts.policy, version=checkpoint.step)
        self.step = checkpoint.step
        self.best_step, self.best_score = checkpoint.state["best_step"], checkpoint.state["best_score"]
        self.updater.skipped = checkpoint.state["skipped_updates"]


@contextmanager
def open_run(recipe: Recipe, folder: Path, model_folder: Path, progress: Progress) -> Iterator[Run]:
    """A run that starts from the weights in `model_folder`, or goes on where its folder's newest checkpoint is.

    While it is open, SIGTERM asks it to stop after the step at hand.
    """
    torch.manual_seed(recipe.seed)
    parts = build(recipe, model_folder)
    for name in ("evaluations", "episodes"):
        (folder / name).mkdir(exist_ok=True)
    splits = {"train": parts.train.questions, "validation": parts.validation.questions}
    corpora = corpora_hash(parts.train.rollout.env.pool.corpora())
    described = manifest(recipe, splits, corpora, parts.policy.weights_hash(), parts.algorithm)
    updater = Updater(parts.policy, recipe.update, parts.algorithm.loss, recipe.training.steps, recipe.seed)
    reference = load_policy(recipe.model, model_folder) if parts.algorithm.loss.kl != "none" else None
    saved = checkpoints(folder / "checkpoints")
    checkpoint = load_checkpoint(saved[-1]) if saved else None
    step = checkpoint.step if checkpoint else -1
    if checkpoint is None:
        write_manifest(folder, described)
    else:
        check_same_inputs(described, folder, step, recipe.study.allow)
    # what was written after the checkpoint will be written again
    rewind_metrics(folder, step, checkpoint.state.get("metrics") if checkpoint else None)
    write_text(folder / "config.toml", to_toml(recipe))
    (folder / "finished").unlink(missing_ok=True)
    run = Run(recipe, folder, parts, updater, RunLog(folder, step), progress, reference)
    try:
        if checkpoint is not None:
            run.restore(checkpoint)
        with _stop_on_sigterm(run):
            yield run
    finally:
        run.log.close()
        parts.engine.close()


@contextmanager
def _stop_on_sigterm(run: Run) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        run.stopping = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class Clock:
    """Seconds between laps, by a clock that no time setting can turn back."""

    start: float = field(default_factory=time.perf_counter)
    laps: dict[str, float] = field(default_factory=dict)

    def lap(self, name: str) -> None:
        """End the lap called `name`."""
        now = time.perf_counter()
        self.laps[f"seconds_{name}"] = now - self.start
        self.start = now
