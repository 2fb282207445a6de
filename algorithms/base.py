"""What an algorithm is, and the group statistics and returns that algorithms are made of.

An algorithm is a frozen dataclass whose fields are its hyper-parameters; calling it turns a table of turns into credit.
It sees no token, model or device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from a2tgpo.algorithms.losses import LossSpec
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import Credit, TurnReward, TurnTable, information_gain_of, tabulate
from a2tgpo.checks import KnownFields, whole_field
from a2tgpo.episode import Episode

EPSILON: Final = 1e-6
"""Added to every standard deviation."""
VARIANCE_FLOOR: Final = 1e-8
"""Added to the variance under `population`, before the root."""


@dataclass(frozen=True, kw_only=True)
class Algorithm(KnownFields):
    """Base of all algorithms. A subclass is a frozen dataclass with a `__call__`; its fields are its hyper-parameters.
    With `workings` beside it, `a2tgpo explain` can show how its credit comes about.

    Raises:
        ConfigError: on a parameter that the algorithm does not have (naming the nearest one) or a value out of its
            range.
    """

    needs_information_gain: ClassVar[bool] = False
    """Does the algorithm read the `information_gain` column? If not, none is computed."""

    loss: LossSpec = LossSpec()
    """What the credit is trained with."""
    generation_batch: int = 1
    """Groups that are rolled out for every group that a step trains on; those that `is_informative` prefers are kept
    (DAPO's dynamic sampling). 1 = no choice.
    """
    max_resamples: int = 0
    """How many more times groups may be rolled out when too few of a step are informative; 0 = never."""

    def __post_init__(self) -> None:
        whole_field(self, "generation_batch", 1)
        whole_field(self, "max_resamples", 0)

    def __call__(self, table: TurnTable) -> Credit:
        """Credit of every turn of the table; turns outside `table.mask` get 0."""
        raise NotImplementedError(
            f"{type(self).__name__} has no __call__, expected one that turns a TurnTable into Credit"
        )

    def tabulate(self, episodes: Sequence[Episode], turn_reward: TurnReward = information_gain_of) -> TurnTable:
        """The table that the algorithm reads; an algorithm that compares states in its own way overrides this."""
        return tabulate(episodes, turn_reward)

    def workings(self, table: TurnTable) -> Workings:
        """The quantities between table and credit, for people who follow the arithmetic; here only what any algorithm
        reads.
        """
        read = {"outcome": over_turns(table.outcome, table), "gain": table.information_gain}
        return Workings(read, (f"credit as {type(self).__name__} gives it",), "A = {advantage}", "A = {advantage}")

    def is_informative(self, table: TurnTable) -> Bool[Tensor, " group"]:
        """Groups that can teach something: their raw outcomes differ, or they hold one episode, so that rolling out
        again would not help.
        """
        return informative_groups(table.outcome, table.group, table.mask.any(dim=1))


def informative_groups(
    outcome: Float[Tensor, " episode"], group: Int[Tensor, " episode"], played: Bool[Tensor, " episode"]
) -> Bool[Tensor, " group"]:
    """Which groups have at least two different outcomes among the played episodes, or one played episode only."""
    groups = _num_groups(group)
    low, high = (_extreme(outcome, group, played, groups, reduce) for reduce in ("amin", "amax"))
    return (high > low) | (_count(group, played, groups) == 1)


def group_moments(
    values: Float[Tensor, "*shape"], group: Int[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], statistics: str
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"], Int[Tensor, "*shape"]]:
    """Mean, standard deviation and size of each value's group, over the values in `mask`.

    - `sample`: σ = sqrt(Σ(x−μ)² / (n−1)), as verl and verl-agent do; 0 for a group of one.
    - `population`: σ = sqrt(Σ(x−μ)² / n + 1e-8), as IGPO and A2TGPO do; 1 for a group of one.
    """
    item, inside, index = values.flatten(), mask.flatten(), group.flatten()
    groups = _num_groups(index)
    count = _count(index, inside, groups)
    size = count.clamp(min=1)
    # measured from the group's smallest value: exact zeros in constant groups, and no cancellation where the values are
    # large
    base = _extreme(item, index, inside, groups, "amin").where(count > 0, 0.0)
    height = (item - base.index_select(0, index)).where(inside, 0.0)
    mean = _sum(height, index, groups) / size
    squares = _sum((height - mean.index_select(0, index)).square().where(inside, 0.0), index, groups)
    std = (
        (squares / (size - 1).clamp(min=1)).sqrt()
        if statistics == "sample"
        else (squares / size + VARIANCE_FLOOR).sqrt().where(count > 1, 1.0)
    )
    per_item = [column.index_select(0, index).view(values.shape) for column in (base + mean, std, count)]
    return per_item[0], per_item[1], per_item[2]


def normalize(
    values: Float[Tensor, "*shape"],
    group: Int[Tensor, "*shape"],
    mask: Bool[Tensor, "*shape"],
    statistics: str,
    divide: bool = True,
    epsilon: float = EPSILON,
    floor: float = 0.0,
) -> Float[Tensor, "*shape"]:
    """z = (x − μ) / (max(σ, floor) + ε) within each group, or x − μ without `divide`; 0 in groups of one and outside
    `mask`.
    """
    mean, std, count = group_moments(values, group, mask, statistics)
    centred = (values - mean).where(mask & (count > 1), 0.0)
    return centred / (std.clamp(min=floor) + epsilon) if divide else centred


def discounted_returns(
    values: Float[Tensor, "episode turn"], gamma: float, order: Int[Tensor, "episode turn"] | None = None
) -> Float[Tensor, "episode turn"]:
    """G_k = Σ_{j≥k} γ^{o_j − o_k} x_j along each row, o being the position of a turn in its row, or `order` where turns
    are counted otherwise.

    Computed backwards as G_k = x_k + γ^{o_{k+1} − o_k} G_{k+1}: a loop over turns only, each step for all episodes at
    once.
    """
    columns = list(values.unbind(dim=1))
    gaps = [1] * len(columns) if order is None else order.diff(dim=1).unbind(dim=1)
    for k in range(len(columns) - 2, -1, -1):
        columns[k] = columns[k] + gamma ** gaps[k] * columns[k + 1]
    return torch.stack(columns, dim=1)


def over_turns(per_episode: Float[Tensor, " episode"], table: TurnTable) -> Float[Tensor, "episode turn"]:
    """An episode's value given to each of its turns; 0 outside `table.mask`."""
    return per_episode[:, None].expand_as(table.reward).where(table.mask, 0.0)


def outcome_workings(table: TurnTable, statistics: str, divide: bool = True) -> Workings:
    """Workings of credit that is the outcome normalised over the group."""
    moments = group_moments(table.outcome, table.group, table.mask.any(dim=1), statistics)
    mean, std, _ = (over_turns(value.float(), table) for value in moments)
    columns = {"outcome": over_turns(table.outcome, table), "mean": mean, "std": std}
    divisor, line = ("/(std + 1e-6)", "({outcome} − {mean})/({std} + 1e-6)") if divide else ("", "{outcome} − {mean}")
    formula = (
        f"advantage = (outcome − mean){divisor} over the question's episodes ({statistics} std); 0 in a group of one"
    )
    return Workings(columns, (formula,), f"A = {line} = {{advantage}}", f"A = {line} = {{advantage}}")


def group_of_turns(table: TurnTable) -> Int[Tensor, "episode turn"]:
    """The episode's group, for each of its turns."""
    return table.group[:, None].expand_as(table.state)


def last_turn(table: TurnTable) -> Bool[Tensor, "episode turn"]:
    """True on the last turn of every episode."""
    return table.mask & (torch.arange(table.mask.shape[1], device=table.mask.device) == table.num_turns[:, None] - 1)


def _num_groups(index: Int[Tensor, " item"]) -> int:
    return int(index.max()) + 1 if len(index) else 0


def _sum(values: Float[Tensor, " item"], index: Int[Tensor, " item"], groups: int) -> Float[Tensor, " group"]:
    return values.new_zeros(groups).index_add(0, index, values)


def _count(index: Int[Tensor, " item"], mask: Bool[Tensor, " item"], groups: int) -> Int[Tensor, " group"]:
    return torch.zeros(groups, dtype=torch.long, device=index.device).index_add(0, index, mask.long())


def _extreme(
    values: Float[Tensor, " item"], index: Int[Tensor, " item"], mask: Bool[Tensor, " item"], groups: int, reduce: str
) -> Float[Tensor, " group"]:
    worst = torch.inf if reduce == "amin" else -torch.inf
    return torch.scatter_reduce(values.new_full((groups,), worst), 0, index, values.where(mask, worst), reduce)
