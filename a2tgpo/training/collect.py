"""The episodes of a step."""

from collections.abc import Sequence
from dataclasses import replace

from a2tgpo.algorithms import Algorithm
from a2tgpo.envs import Question
from a2tgpo.episode import Episode
from a2tgpo.training.questions import QuestionStream, tasks_of
from a2tgpo.training.run import Run


def collect(run: Run, stream: QuestionStream) -> list[Episode]:
    """The step's episodes. For an algorithm that wants to choose, several times as many groups are rolled out, and a
    bounded number of times more while too few of them teach something.

    Raises:
        RolloutError: if more episodes failed than the recipe allows.
    """
    algorithm, settings = run.parts.algorithm, run.recipe.rollout
    wanted, asked = settings.questions, stream.at(run.step)
    more = stream.spare(run.step, 0, wanted * (algorithm.generation_batch - 1), asked)

    def play(questions: Sequence[Question], attempt: int, first_group: int) -> list[Episode]:
        tasks = tasks_of(questions, settings.group_size, seed=run.recipe.seed, step=run.step, attempt=attempt)
        played = run.parts.train.rollout(tasks, settings.temperature)
        run.check_played(played, f"step {run.step + 1}")
        return [replace(episode, group=first_group + episode.group) for episode in played]

    asked = [*asked, *more]
    episodes = play(asked, 0, 0)
    for attempt in range(1, algorithm.max_resamples + 1):
        missing = wanted - len(informative_groups(algorithm, episodes))
        more = stream.spare(run.step, attempt, missing * algorithm.generation_batch, asked)
        if not more:
            break
        episodes += play(more, attempt, len(asked))
        asked = [*asked, *more]
    return episodes if len(asked) <= wanted else _chosen(algorithm, episodes, wanted)


def informative_groups(algorithm: Algorithm, episodes: Sequence[Episode]) -> set[int]:
    """Groups that the algorithm can learn from, judged by the score (shaping could make any two episodes differ)."""
    played = [replace(episode, outcome=episode.score) for episode in episodes if not episode.failed]
    if not played:
        return set()
    useful = algorithm.is_informative(algorithm.tabulate(played)).tolist()
    in_table = dict.fromkeys(episode.group for episode in played)
    return {group for group, use in zip(in_table, useful, strict=True) if use}


def _chosen(algorithm: Algorithm, episodes: Sequence[Episode], wanted: int) -> list[Episode]:
    """As many groups as are wanted, the first informative ones, filled up with the first others; numbered from 0."""
    informative = informative_groups(algorithm, episodes)
    groups = sorted({episode.group for episode in episodes}, key=lambda group: (group not in informative, group))
    places = {group: place for place, group in enumerate(sorted(groups[:wanted]))}
    return [replace(episode, group=places[episode.group]) for episode in episodes if episode.group in places]
