"""The carriers between rollout, algorithm and loss.

`TokenBatch` holds what the model sees, `TurnTable` what an algorithm sees, `Credit` what it answers;
`Credit.advantage[i, k]` belongs to the tokens whose `TokenBatch.turn` is k in row i, so spreading credit over tokens is
one gather. Axis words: `episode`, `turn`, `token`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Episodes as right-padded token rows."""

    token_ids: Int[Tensor, "episode token"]
    attention_mask: Bool[Tensor, "episode token"]
    turn: Int[Tensor, "episode token"]
    """Turn that sampled the token; -1 for prompt, observations and padding."""
    sampler_logprobs: Float[Tensor, "episode token"]
    """Log-probability under the engine that sampled the token; 0 elsewhere."""

    @property
    def action_mask(self) -> Bool[Tensor, "episode token"]:
        """True exactly on tokens that the policy sampled."""
        return self.turn >= 0

    def take(self, rows: Sequence[int] | Int[Tensor, " row"]) -> "TokenBatch":
        """Some rows, without the columns that are padding in all of them."""
        width = int(self.attention_mask[rows].sum(dim=1).max())
        return TokenBatch(*(getattr(self, field.name)[rows, :width] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class TurnTable:
    """All that an algorithm may know of a batch: one row per episode, one column per turn.

    Raises:
        ConfigError: on a shape or mask mismatch, a non-finite outcome or reward, or a group id without episodes.
    """

    group: Int[Tensor, " episode"]
    """Question index, 0 … number of groups - 1, each used by at least one episode."""
    outcome: Float[Tensor, " episode"]
    reward: Float[Tensor, "episode turn"]
    """Environment reward of each turn."""
    information_gain: Float[Tensor, "episode turn"]
    """Process reward of each turn, by default its information gain in nats; NaN where `scored` is false."""
    scored: Bool[Tensor, "episode turn"]
    """Does the turn have an information gain? False for the answer turn and for turns that ran no search."""
    state: Int[Tensor, "episode turn"]
    """Equal numbers = equal state keys (the observation that the turn acted on)."""
    num_tokens: Int[Tensor, "episode turn"]
    """Sampled tokens of each turn."""
    mask: Bool[Tensor, "episode turn"]
    """Does the turn exist? Turns of an episode are 0 … n-1, so each row is true up to n."""

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_values(self)

    @property
    def num_groups(self) -> int:
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def num_turns(self) -> Int[Tensor, " episode"]:
        return self.mask.sum(dim=1)


@dataclass(frozen=True, slots=True)
class Credit:
    """An algorithm's answer, per turn."""

    advantage: Float[Tensor, "episode turn"]
    clip_scale: Float[Tensor, "episode turn"]
    """Multiplies both clip widths of the turn; 1 = the plain clip range."""
    weight: Float[Tensor, "episode turn"]
    """Multiplies the turn's loss; 0 leaves it out of the sum and of every denominator."""

    @staticmethod
    def of(
        advantage: Float[Tensor, "episode turn"], clip_scale: Float[Tensor, "episode turn"] | None = None
    ) -> "Credit":
        """Credit with weight 1 and, unless given, clip scale 1."""
        return Credit(
            advantage, torch.ones_like(advantage) if clip_scale is None else clip_scale, torch.ones_like(advantage)
        )


def spread(
    per_turn: Float[Tensor, "episode turn"], turn: Int[Tensor, "episode token"]
) -> Float[Tensor, "episode token"]:
    """Give every sampled token the value of its turn; 0 where no turn sampled the token."""
    return torch.where(turn >= 0, per_turn.gather(1, turn.clamp(min=0)), 0.0)


def no_tokens(device: torch.device | str = "cpu") -> TokenBatch:
    """The rows of no episode at all."""
    nothing = torch.zeros((0, 0), device=device)
    return TokenBatch(nothing.long(), nothing.bool(), nothing.long(), nothing)


def collate(episodes: Sequence[Episode], pad_token_id: int, device: torch.device | str = "cpu") -> TokenBatch:
    """Episodes to right-padded rows. The trained tokens are exactly what was shown and sampled, in that order.

    Raises:
        ConfigError: if there is no episode, or one of them failed (failed episodes are data for the log, not for the
            loss).
    """
    if not episodes:
        raise ConfigError(
            "collate: got no episode, expected at least one; if every episode of the batch failed, the run's episodes"
            " folder says why"
        )
    for episode in episodes:
        if episode.failed or not episode.turns:
            got = f"stop={episode.stop} and {episode.num_turns} turns"
            raise ConfigError(
                f"collate: episode of question {episode.question_id!r} has {got}, expected a played one; drop failed"
                " episodes first"
            )
    mask = _filled([episode.num_tokens for episode in episodes])
    turn = _in_places(mask, (index for episode in episodes for index in episode.turn_index), -1, torch.long)
    rows = TokenBatch(
        _in_places(mask, (token for episode in episodes for token in episode.token_ids), pad_token_id, torch.long),
        mask,
        turn,
        _in_places(
            turn >= 0,
            (value for episode in episodes for step in episode.turns for value in step.action_logprobs),
            0.0,
            torch.float32,
        ),
    )
    return TokenBatch(*(getattr(rows, field.name).to(device) for field in fields(rows)))


TurnReward = Callable[[Episode], Sequence[float | None]]
"""A process reward of any origin: one value per turn of the episode, `None` where the turn has none."""


def information_gain_of(episode: Episode) -> list[float | None]:
    """The default process reward: the recorded information gain of every turn, in nats."""
    return [turn.information_gain for turn in episode.turns]


def probability_gain_of(episode: Episode) -> list[float | None]:
    """The recorded gain of every turn as a difference of probabilities."""
    return [turn.probability_gain for turn in episode.turns]


def tabulate(episodes: Sequence[Episode], turn_reward: TurnReward = information_gain_of) -> TurnTable:
    """Episodes to the table that an algorithm sees, row by row. Groups and states are renumbered from 0.

    An episode that failed has a row without turns, so that it counts in no statistic and gets no credit.

    Args:
        episodes: in any order; episodes of one question share `Episode.group`.
        turn_reward: what fills the `information_gain` column; a reward model, a rule or a human label can take the
            place of information gain here.

    Raises:
        ConfigError: if no episode was played, or `turn_reward` returns another number of values than an episode has
            turns, or a non-finite one.
    """
    played = [episode for episode in episodes if not episode.failed]
    if not any(episode.turns for episode in played):
        raise ConfigError(
            f"tabulate: got {len(episodes)} episodes of which none was played, expected at least one; an episode's"
            " `error` says what broke"
        )
    mask = _filled([0 if episode.failed else episode.num_turns for episode in episodes])
    turns = [turn for episode in played for turn in episode.turns]
    group_numbers: dict[int, int] = {}
    state_numbers: dict[str, int] = {}
    gain = _in_places(
        mask,
        (value for episode in played for value in _checked_turn_reward(turn_reward(episode), episode)),
        torch.nan,
        torch.float32,
    )
    return TurnTable(
        group=torch.tensor([_number(group_numbers, episode.group) for episode in episodes]),
        outcome=torch.tensor([episode.outcome for episode in episodes], dtype=torch.float32),
        reward=_in_places(mask, (turn.reward for turn in turns), 0.0, torch.float32),
        information_gain=gain,
        scored=~gain.isnan(),
        state=_in_places(mask, (_number(state_numbers, turn.state_key) for turn in turns), 0, torch.long),
        num_tokens=_in_places(mask, (len(turn.action_ids) for turn in turns), 0, torch.long),
        mask=mask,
    )


def _filled(sizes: Sequence[int]) -> Bool[Tensor, "row column"]:
    """Rows of which the first so many columns are true."""
    return torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]


def _in_places(
    mask: Bool[Tensor, "row column"], values: Iterable[float], empty: int | float, dtype: torch.dtype
) -> Shaped[Tensor, "row column"]:
    """The values, row by row, where the mask is true; `empty` elsewhere. By way of numpy, which reads a list several
    times as fast as torch.
    """
    result = torch.full(mask.shape, empty, dtype=dtype)
    result[mask] = torch.from_numpy(np.array(list(values))).to(dtype)
    return result


def _number(numbers: dict[_Key, int], key: _Key) -> int:
    return numbers.setdefault(key, len(numbers))


def _checked_turn_reward(values: Sequence[float | None], episode: Episode) -> list[float]:
    if len(values) != episode.num_turns:
        expected = f"expected one per turn ({episode.num_turns}); use None for turns without one"
        raise ConfigError(f"turn_reward: got {len(values)} values for question {episode.question_id!r}, {expected}")
    for turn, value in enumerate(values):
        if value is not None and not abs(value) < float("inf"):
            raise ConfigError(
                f"turn_reward: got {value} for turn {turn} of question {episode.question_id!r}, expected a finite"
                " number or None"
            )
    return [float("nan") if value is None else float(value) for value in values]


def _check_shapes(table: TurnTable) -> None:
    episodes, turns = table.mask.shape
    for name in (field.name for field in fields(table)):
        shape = tuple(getattr(table, name).shape)
        expected = (episodes,) if name in ("group", "outcome") else (episodes, turns)
        if shape != expected:
            raise ConfigError(
                f"TurnTable.{name}: got shape {shape}, expected {expected} (as `mask` has {episodes} episodes × {turns}"
                " turns)"
            )


def _check_values(table: TurnTable) -> None:
    problems: Mapping[str, tuple[Tensor, str]] = {
        "outcome": (~table.outcome.isfinite(), "finite numbers"),
        "reward": (~table.reward.isfinite() & table.mask, "finite numbers on existing turns"),
        "information_gain": (
            ~table.information_gain.isfinite() & table.scored,
            "finite numbers where `scored` is true; a missing gain is not scored",
        ),
        "scored": (table.scored & ~table.mask, "true only on existing turns"),
        "mask": (table.mask[:, 1:] & ~table.mask[:, :-1], "a run of true from turn 0 on in every row"),
    }
    for name, (wrong, expected) in problems.items():
        if bool(wrong.any()):
            where = wrong.nonzero()[0].tolist()
            raise ConfigError(
                f"TurnTable.{name}: got {getattr(table, name)[tuple(where)].item()} at index {where}, expected"
                f" {expected}"
            )
    if bool((table.group < 0).any()):
        raise ConfigError(f"TurnTable.group: got {int(table.group.min())}, expected ids from 0 on")
    if empty := (torch.bincount(table.group) == 0).nonzero().flatten().tolist():
        raise ConfigError(
            f"TurnTable.group: group ids {empty} have no episode, expected 0 … {int(table.group.max())} all in use"
        )
