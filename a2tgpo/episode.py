"""What happened in one episode, as plain data.

Tokens, turn boundaries and the policy mask are recorded when they are born and only ever concatenated: an episode is
never found again in text, and nothing is decoded and encoded again. The layout of an episode is

    context_0 action_0 context_1 action_1 … context_n action_n [closing]

where `context_k` are the tokens shown before turn k (the prompt for k = 0, the observation of turn k-1 afterwards),
`action_k` the tokens that the policy sampled in turn k, and `closing` the observation of the last turn when a limit
ended the episode after it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, chain, repeat

from a2tgpo.errors import ConfigError


class ActionKind(StrEnum):
    """What a turn did."""

    SEARCH = "search"
    """A query was sent to the retriever."""
    ANSWER = "answer"
    """The final answer; it ends the episode."""
    INVALID = "invalid"
    """Neither could be read; the agent was told so."""


class StopReason(StrEnum):
    """Why an episode ended. Only ANSWERED is a termination; the limits are truncations; FAILED is outside the agent's
    reach.
    """

    ANSWERED = "answered"
    """The agent gave an answer."""
    MAX_TURNS = "max_turns"
    """The turn limit ended it."""
    MAX_SEARCHES = "max_searches"
    """A search was asked for after the search budget was spent."""
    MAX_TOKENS = "max_tokens"
    """The next observation or action would not fit into the context."""
    FAILED = "failed"
    """Something around the agent broke (retriever, engine). Kept as data, left out of the loss and of all group
    statistics.
    """


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation and what it led to."""

    context_ids: tuple[int, ...]
    """Tokens shown since the previous action: the prompt, or the previous turn's observation. Never trained."""
    action_ids: tuple[int, ...]
    """Tokens that the policy sampled, with the closing tag or end token if it sampled one. Exactly these are trained.
    """
    action_logprobs: tuple[float, ...]
    """The engine's log-probability of each action token when it was sampled (natural log)."""
    action: ActionKind
    reward: float = 0.0
    """Reward of the environment for this step."""
    information_gain: float | None = None
    """Change of the gold answer's mean log-probability by this turn, in nats; `None` = never scored, which is not the
    same as 0.
    """
    state_key: str = ""
    """The observation that the turn acted on (GiGPO's anchor): the question, later the last retrieved block."""
    query: str = ""
    """Of a search."""
    answer: str = ""
    """Of an answer."""
    passage_ids: tuple[str, ...] = ()
    """Of the passages that the search brought up, best first."""
    retrieval_failed: bool = False
    """Did the search break?"""
    format_ok: bool = True
    """Is the action written as the protocol asks?"""
    complete: bool = True
    """Did a stop string or the end token end the action, rather than the token limit?"""
    probability_gain: float | None = None
    """Change of the gold answer's probability by this turn, from the same pass as `information_gain`, and `None` where
    that is.
    """

    def __post_init__(self) -> None:
        if len(self.action_ids) != len(self.action_logprobs):
            raise ConfigError(
                f"Turn.action_logprobs: got {len(self.action_logprobs)} values, expected one per action token"
                f" ({len(self.action_ids)})"
            )
        if not self.action_ids:
            raise ConfigError(
                "Turn.action_ids: got no token, expected at least one; an episode whose engine sampled nothing must be"
                " recorded as failed"
            )


@dataclass(frozen=True)
class Episode:
    """One rollout of one question."""

    group: int
    """Index of the question within the batch; all episodes of one question share it."""
    question_id: str
    seed: int
    turns: tuple[Turn, ...]
    outcome: float
    """What the episode is worth: its score, plus shaping if configured. Algorithms credit this."""
    stop: StopReason
    closing_ids: tuple[int, ...] = ()
    """Observation after the last turn, shown to nobody but needed to score that turn's information gain; empty when it
    answered.
    """
    gold_answers: tuple[str, ...] = ()
    score: float = math.nan
    """The answer against the gold answers, without shaping; NaN where nobody said."""
    em: float = 0.0
    f1: float = 0.0
    searches: int = 0
    """Searches that reached the retriever and came back."""
    answer: str = ""
    """The final answer; empty where there is none."""
    supporting: tuple[str, ...] = ()
    """Ids of the passages that together hold the answer, where known."""
    error: str = ""
    """What broke, for FAILED episodes."""
    ended: StopReason | None = None
    """How a FAILED episode would have ended otherwise."""

    @property
    def failed(self) -> bool:
        return self.stop is StopReason.FAILED

    @property
    def valid_format(self) -> bool:
        """Did it end with an answer, and is every turn written as the protocol asks?"""
        return self.stop is StopReason.ANSWERED and all(turn.format_ok for turn in self.turns)

    @property
    def num_turns(self) -> int:
        return len(self.turns)

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens in order, closing observation included."""
        return (
            tuple(chain.from_iterable((*turn.context_ids, *turn.action_ids) for turn in self.turns)) + self.closing_ids
        )

    @cached_property
    def turn_index(self) -> tuple[int, ...]:
        """Per token: the turn that sampled it, or -1 for tokens that nobody sampled."""
        spans = chain.from_iterable(
            chain(repeat(-1, len(turn.context_ids)), repeat(index, len(turn.action_ids)))
            for index, turn in enumerate(self.turns)
        )
        return tuple(spans) + (-1,) * len(self.closing_ids)

    @cached_property
    def action_mask(self) -> tuple[bool, ...]:
        """Per token: was it sampled by the policy?"""
        return tuple(index >= 0 for index in self.turn_index)

    @cached_property
    def action_starts(self) -> tuple[int, ...]:
        """Per turn: position of its first sampled token, i.e. the number of tokens that the turn could see."""
        lengths = [len(turn.context_ids) + len(turn.action_ids) for turn in self.turns]
        ends = accumulate(lengths)
        return tuple(end - len(turn.action_ids) for end, turn in zip(ends, self.turns, strict=True))

    @cached_property
    def num_tokens(self) -> int:
        return sum(len(turn.context_ids) + len(turn.action_ids) for turn in self.turns) + len(self.closing_ids)

    @cached_property
    def num_action_tokens(self) -> int:
        """Tokens that the policy sampled."""
        return sum(len(turn.action_ids) for turn in self.turns)
