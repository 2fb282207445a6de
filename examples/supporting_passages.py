"""A process reward of another origin: instead of information gain, how many supporting passages a search brought up for
the first time.

Any function from an episode to one value per turn can stand in: a reward model, a rule, a human's label. Neither the
loop nor A2TGPO changes; only the table is made with another reward:

    a2tgpo compare quickstart --algorithm examples/supporting_passages.py:A2TGPOWithSupport

`python examples/supporting_passages.py` shows it on three made-up episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from a2tgpo.algorithms import A2TGPO
from a2tgpo.batch import TurnReward, TurnTable, tabulate
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn


def new_supporting_passages(episode: Episode) -> list[float | None]:
    """The rule: a search turn earns 1 for each supporting passage of its question that no earlier turn has retrieved;
    other turns have no value.
    """
    missing = set(episode.supporting)
    values: list[float | None] = []
    for turn in episode.turns:
        if turn.action is ActionKind.SEARCH:
            found = missing.intersection(turn.passage_ids)
            missing -= found
            values.append(float(len(found)))
        else:
            values.append(None)
    return values


@dataclass(frozen=True, kw_only=True)
class A2TGPOWithSupport(A2TGPO):
    """A2TGPO whose turns are judged by the rule."""

    needs_information_gain: ClassVar[bool] = False  # so the loop computes none

    def tabulate(self, episodes: Sequence[Episode], turn_reward: TurnReward | None = None) -> TurnTable:
        return tabulate(episodes, turn_reward or new_supporting_passages)


def played(passage_ids: list[list[str]], outcome: float) -> Episode:
    """An episode that ran one search per list of retrieved passages, then answered."""
    searches = [Turn((1,), (2,), (-0.5,), ActionKind.SEARCH, passage_ids=tuple(ids)) for ids in passage_ids]
    answer = Turn((1,), (3,), (-0.5,), ActionKind.ANSWER, reward=outcome)
    return Episode(
        0,
        "where-was-her-father-born",
        0,
        (*searches, answer),
        outcome,
        StopReason.ANSWERED,
        supporting=("ada", "byron"),
    )


def main() -> None:
    """Print the rule's values and the credit that they lead to."""
    algorithm = A2TGPOWithSupport()
    table = algorithm.tabulate(
        [played([["ada", "x"], ["byron"]], 1.0), played([["x"], ["ada"]], 0.0), played([["ada"], ["ada"]], 0.0)]
    )
    print("new supporting passages per turn:", table.information_gain.tolist())
    print("credit per turn:", algorithm(table).advantage.tolist())


if __name__ == "__main__":
    main()
