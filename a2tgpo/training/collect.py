"""The episodes of a step."""

from collections.abc import Sequence
from dataclasses import replace

from a2tgpo.algorithms import Algorithm
from a2tgpo.envs import Question
from a2tgpo.episode import Episode
from a2tgpo.training.questions import QuestionStream, tasks_of
from a2tgpo.training.run import Run


def collect(run: Run, stream: QuestionStream) -> list[Episode]:
    """The step's episodes. An algorithm that allows it has groups that teach nothing replaced by other questions, a
    bounded number of times.

    Raises:
        RolloutError: if more episodes failed than the recipe allows.
    """

    def play(questions: Sequence[Question], attempt: int, groups: set[int] | None = None) -> list[Episode]:
        settings = run.recipe.rollout
        tasks = tasks_of(questions, settings.group_size, seed=run.recipe.seed, step=run.step, attempt=attempt)
        wanted = [task for task in tasks if groups is None or task.group in groups]
        return run.parts.train.rollout(wanted, settings.temperature)

    episodes = play(stream.at(run.step), attempt=0)
    for attempt in range(1, run.parts.algorithm.max_resamples + 1):
        useless = uninformative_groups(run.parts.algorithm, episodes)
        if not useless:
            break
        kept = [episode for episode in episodes if episode.group not in useless]
        spare = play(stream.spare(run.step, attempt), attempt, useless)
        episodes = sorted([*kept, *spare], key=lambda episode: episode.group)
    run.check_played(episodes, f"step {run.step + 1}")
    return episodes


def uninformative_groups(algorithm: Algorithm, episodes: Sequence[Episode]) -> set[int]:
    """Groups that the algorithm cannot learn from, judged by the score (shaping could make any two episodes
    differ).
    """
    played = [replace(episode, outcome=episode.score) for episode in episodes if not episode.failed]
    useful = algorithm.is_informative(algorithm.tabulate(played)).tolist() if played else []
    in_table = list(dict.fromkeys(episode.group for episode in played))
    informative = {group for group, use in zip(in_table, useful, strict=True) if use}
    return {episode.group for episode in episodes} - informative
