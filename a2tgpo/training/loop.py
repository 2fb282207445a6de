"""The training loop. It names no algorithm: rollout → scores → credit → update, and two runs differ in the credit
only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from a2tgpo.config import Recipe
from a2tgpo.episode import Episode
from a2tgpo.errors import NumericalError
from a2tgpo.files import write_text
from a2tgpo.run_folder.lock import claim
from a2tgpo.run_folder.resume import check_same_recipe, is_finished
from a2tgpo.training.collect import collect
from a2tgpo.training.questions import QuestionStream
from a2tgpo.training.run import Clock, Progress, Run, open_run
from a2tgpo.training.sampler_gap import check_sampler


def train(recipe: Recipe, folder: Path, model_folder: Path, progress: Progress) -> bool:
    """Train from the weights in `model_folder`, or continue the run that `folder` holds; a finished run is left as it
    is, unless the recipe has more steps than it was trained for.

    Returns:
        True if the run is finished, False if SIGTERM stopped it; the same call continues it.

    Raises:
        ConfigError: if the recipe cannot be built, or the folder is in use, not writable, or holds a run of another
            recipe.
        NumericalError: on a number that must not be used; the last checkpoint is intact and the step's episodes are in
            the run's folder.
        RolloutError: if too many episodes of a step or an evaluation failed; the last checkpoint is intact.
    """
    with claim(folder):
        check_same_recipe(recipe, folder)
        if is_finished(recipe, folder):
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
    policy, engine, clock = run.parts.policy, run.parts.engine, Clock()
    episodes = collect(run, stream)
    engine.sleep()
    clock.lap("rollout")
    with kept_if_broken(run, episodes):
        batch = run.score(episodes)
        check_sampler(batch.scores.tokens, batch.scores.logprobs, policy.dtype, run.recipe.rollout.temperature)
        clock.lap("gain")
        updated = run.updater(batch.training, run.step)
    engine.load_weights(policy, version=run.step + 1)
    clock.lap("update")
    run.step += 1
    run.finish_step(batch, updated, clock.laps)


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
