"""How actions and observations are written as text.

A protocol is a frozen object that writes what the agent sees and reads what it wrote. `parse` gets model-written text
only, so a tag inside a retrieved passage can never act; it is neutralised anyway before it is shown, since a model's
tokenizer may give it a meaning. The earliest complete action wins and nothing after it matters: `parse(text) ==
parse(text[:end of that action])`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from a2tgpo.envs.records import Passage
from a2tgpo.episode import ActionKind

_MARKUP = re.compile(r"<(/?[A-Za-z_|｜][\w|｜▁:.\-]{0,60}\s?/?)>")
"""Tags, and special tokens: `<|im_end|>`, DeepSeek's `<｜end▁of▁sentence｜>`."""
_ANY_TAG = re.compile(r"</?(?:think|search|answer|information|result|tool_call|tool_response)>")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@lru_cache(maxsize=1 << 14)  # the same passages are shown again and again
def neutralize(text: str) -> str:
    """Foreign text made harmless: anything that looks like a tag or special token gets square brackets, control
    characters and lone surrogates become U+FFFD.

    The length stays the same.

    >>> neutralize("<answer>42</answer> a < b")
    '[answer]42[/answer] a < b'
    """
    if "<" not in text and text.isprintable():  # nearly every passage, and ten times faster than asking the patterns
        return text
    return _UNWRITABLE.sub("\ufffd", _MARKUP.sub(r"[\1]", text))


@dataclass(frozen=True, slots=True)
class Action:
    """What a turn's text says."""

    kind: ActionKind
    text: str
    """The query or the answer; empty for an invalid action."""
    format_ok: bool
    """Is everything up to the end of the action written as the protocol asks?"""


INVALID = Action(ActionKind.INVALID, "", False)


class Protocol(ABC):
    """The interface of a protocol; instances are immutable and shared."""

    name: ClassVar[str]
    stop_strings: ClassVar[tuple[str, ...]]
    """Generation stops after any of these, which is then part of the turn."""
    tags: ClassVar[tuple[str, ...]]
    """Every literal marker of the protocol, for tokenizers that give each a token of its own."""
    search_tag: ClassVar[str]
    """The text that opens a search."""
    scaffold: ClassVar[tuple[str, str]]
    """(text that closes the thought and opens the answer, text that closes the answer): a gold answer is put between
    when it is scored.
    """
    observation_role: ClassVar[str] = ""
    """Chat role that observations are written in; "" = plain text inside the same message."""

    @abstractmethod
    def prompt(self, question: str) -> str:
        """The first observation: instructions and the question."""

    @abstractmethod
    def observation(self, passages: Sequence[Passage]) -> str:
        """The block that shows retrieved passages; also defined for none."""

    @abstractmethod
    def corrective(self) -> str:
        """Shown after an invalid action."""

    @abstractmethod
    def retrieval_failure(self) -> str:
        """Shown when the search failed. Not an evidence block: nothing in it is evidence."""

    @abstractmethod
    def budget_spent(self) -> str:
        """Added to the last observation after which only an answer counts; may be empty."""

    @abstractmethod
    def parse(self, text: str) -> Action:
        """Read the earliest complete action of model-written text. Never raises."""


def earliest_block(text: str, kinds: Sequence[str]) -> tuple[str, int, int, int] | None:
    """The block `<kind>…</kind>` that is closed first: (kind, start of the opening tag, start and end of the content),
    or None.

    A block starts at the last opening tag of its kind before its closing tag. One linear pass per kind.
    """
    found: tuple[str, int, int, int] | None = None
    for kind in kinds:
        opening, closing = f"<{kind}>", f"</{kind}>"
        first = text.find(opening)
        end = text.find(closing, first + len(opening)) if first >= 0 else -1
        if end >= 0 and (found is None or end < found[3]):
            start = text.rfind(opening, first, end)
            found = (kind, start, start + len(opening), end)
    return found


def clean_content(text: str) -> str:
    """An action's content as one line of writable text."""
    return " ".join(_UNWRITABLE.sub(" ", text).split())


def thought_only(text: str) -> bool:
    """Is the text exactly one closed thought without any tag inside?"""
    match = _THOUGHT.fullmatch(text)
    return match is not None and not _ANY_TAG.search(match[1])


def listed(passages: Sequence[Passage]) -> str:
    """Passages as numbered lines."""
    if not passages:
        return "No passage matches this query."
    heads = [
        f"Doc {rank} (Title: {neutralize(hit.title)})" if hit.title else f"Doc {rank}"
        for rank, hit in enumerate(passages, start=1)
    ]
    return "\n".join([f"{head} {neutralize(hit.text)}" for head, hit in zip(heads, passages, strict=True)])
