"""Where in an episode the gold answer is scored, and which two scores make a turn's information gain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from a2tgpo.episode import ActionKind, Episode, StopReason

CutRule = Literal["observation", "released"]
"""After every turn's own observation (the definition), or where the code published with A2TGPO takes its values."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts of one episode, named by numbers from 0 to the number of turns."""

    positions: Mapping[int, int]
    """Cut -> number of tokens before it. Cut k is what turn k could see, the last one the whole episode."""
    gains: tuple[tuple[int, int] | None, ...]
    """Per turn: the cuts before and after; `None` for a turn without gain."""


def ran_search(episode: Episode, turn: int) -> bool:
    """Did the turn's search reach the retriever and come back? A refused search (budget spent) and a failed retrieval
    showed no evidence.
    """
    step = episode.turns[turn]
    refused = turn == episode.num_turns - 1 and episode.stop is StopReason.MAX_SEARCHES
    return step.action is ActionKind.SEARCH and not refused and not step.retrieval_failed


def observation_cuts(episode: Episode) -> Cuts:
    """Before every turn, so after every observation; and at the end if the last turn's own observation was still
    recorded.
    """
    last = episode.num_turns
    positions = dict(enumerate(episode.action_starts))
    if episode.closing_ids and ran_search(episode, last - 1):
        positions[last] = episode.num_tokens
    return Cuts(
        positions,
        tuple(
            (turn, turn + 1) if ran_search(episode, turn) and turn + 1 in positions else None for turn in range(last)
        ),
    )


def released_cuts(episode: Episode, tokenizer: Any, search_tag: str) -> Cuts:
    """As in the released code: before the tag of the next search, and for the last search right behind its own closing
    tag, before its result is shown.

    So the first search has no gain, the others' next thought counts as evidence, and the last result does not. Of the
    code's other departures only one is repeated (by `measure`): a gain of exactly zero is missing. Later turns do not
    move up for it, and no exception is swallowed.
    """
    searches = [index for index, turn in enumerate(episode.turns) if turn.action is ActionKind.SEARCH]
    positions = {}
    for search, following in zip(searches, [*searches[1:], None], strict=True):
        if following is None:
            positions[search + 1] = episode.action_starts[search] + len(episode.turns[search].action_ids)
        else:
            positions[search + 1] = episode.action_starts[following] + _tokens_before(
                tokenizer, episode.turns[following].action_ids, search_tag
            )
    before = dict(zip(searches[1:], searches, strict=False))
    gains = tuple((before[turn] + 1, turn + 1) if turn in before else None for turn in range(episode.num_turns))
    return Cuts(positions, gains)


def _tokens_before(tokenizer: Any, ids: tuple[int, ...], tag: str) -> int:
    """Tokens that lie wholly before the tag's last occurrence; 0 if the text has no such tag."""
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    start = text.rfind(tag)
    if start < 0:
        return 0
    return next(
        count for count in range(len(ids)) if len(tokenizer.decode(ids[: count + 1], skip_special_tokens=False)) > start
    )
