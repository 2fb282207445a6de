"""Protocols that write actions as tags in running text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from a2tgpo.envs.protocols.base import (
    INVALID,
    Action,
    Protocol,
    clean_content,
    earliest_block,
    listed,
    neutralize,
    thought_only,
)
from a2tgpo.envs.records import Passage
from a2tgpo.episode import ActionKind

_ANY_TAG = re.compile(r"</?(?:think|search|answer|information|result)>")
_BLANK = re.compile(r"\s*")
_BRACES = re.compile(r"\\boxed\{|[{}]")


@dataclass(frozen=True, slots=True)
class Tags(Protocol):
    """The Search-R1 family: `<think>`, `<search>`, `<information>`, `<answer>`."""

    name: ClassVar[str] = "tags"
    stop_strings: ClassVar[tuple[str, ...]] = ("</search>", "</answer>")
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<information>",
        "</information>",
        "<answer>",
        "</answer>",
    )
    search_tag: ClassVar[str] = "<search>"
    scaffold: ClassVar[tuple[str, str]] = (
        "<think> The evidence is sufficient to answer. </think>\n<answer> ",
        " </answer>",
    )

    def prompt(self, question: str) -> str:
        return (
            "You answer a question with the help of a search engine. In every turn, first think between <think> and"
            " </think>. Then do exactly one of two things: write a search query between <search> and </search>, and"
            " the best matching passages come back between <information> and </information>; or, once you know enough,"
            " write the final answer between <answer> and </answer>, as short as possible and without an explanation."
            f" Search as often as you need to.\nQuestion: {neutralize(question)}\n"
        )

    def observation(self, passages: Sequence[Passage]) -> str:
        return f"\n\n<information>\n{listed(passages)}\n</information>\n\n"

    def corrective(self) -> str:
        return (
            "\n\nThat turn held no valid action. Write a query between <search> and </search>, or the final answer"
            " between <answer> and </answer>. Try again.\n\n"
        )

    def retrieval_failure(self) -> str:
        return (
            "\n\nThe search engine did not respond, so this query has no result. Search again, or answer with what you"
            " know.\n\n"
        )

    def budget_spent(self) -> str:
        return "No further search is possible. Write the final answer between <answer> and </answer>.\n\n"

    def parse(self, text: str) -> Action:
        block = earliest_block(text, ("search", "answer"))
        if block is None:
            return INVALID
        kind, start, begin, end = block
        content = clean_content(text[begin:end])
        if not content:
            return INVALID
        return Action(ActionKind(kind), content, thought_only(text[:start]) and not _ANY_TAG.search(text[begin:end]))


@dataclass(frozen=True, slots=True)
class TagsBrief(Protocol):
    """The same tags with no instructions, no thoughts and one-token notices: for tiny models, where every token
    counts.
    """

    name: ClassVar[str] = "tags_brief"
    stop_strings: ClassVar[tuple[str, ...]] = ("</search>", "</answer>")
    tags: ClassVar[tuple[str, ...]] = (
        "<search>",
        "</search>",
        "<information>",
        "</information>",
        "<answer>",
        "</answer>",
        "<invalid>",
        "<failed>",
    )
    search_tag: ClassVar[str] = "<search>"
    scaffold: ClassVar[tuple[str, str]] = ("<answer>", "</answer>")

    def prompt(self, question: str) -> str:
        return f"Question: {neutralize(question)}\n"

    def observation(self, passages: Sequence[Passage]) -> str:
        shown = " ".join(
            f"{neutralize(p.title)} : {neutralize(p.text)}" if p.title else neutralize(p.text) for p in passages
        )
        return f"<information> {shown} </information>" if shown else "<information></information>"

    def corrective(self) -> str:
        return "<invalid>"

    def retrieval_failure(self) -> str:
        return "<failed>"

    def budget_spent(self) -> str:
        return ""

    def parse(self, text: str) -> Action:
        block = earliest_block(text, ("search", "answer"))
        if block is None:
            return INVALID
        kind, start, begin, end = block
        content = clean_content(text[begin:end])
        if not content:
            return INVALID
        return Action(
            ActionKind(kind),
            content,
            _BLANK.fullmatch(text, 0, start) is not None and not _ANY_TAG.search(text[begin:end]),
        )


@dataclass(frozen=True, slots=True)
class Boxed(Tags):
    r"""The ReSearch / AT2PO / A2TGPO family: results between `<result>` tags, the answer in `\boxed{}` inside
    `<answer>`.

    The last box of the answer counts. An answer without a box is read whole, with `format_ok` false.
    """

    name: ClassVar[str] = "boxed"
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<result>",
        "</result>",
        "<answer>",
        "</answer>",
    )
    search_tag: ClassVar[str] = "<search>"
    scaffold: ClassVar[tuple[str, str]] = (
        "<think> The evidence is sufficient to answer. </think>\n<answer> \\boxed{",
        "} </answer>",
    )

    def prompt(self, question: str) -> str:
        return (
            "You are a helpful assistant. You answer a question step by step and may consult a tool that searches"
            " Wikipedia. In every turn, first reason between <think> and </think>. If a fact is missing, write a query"
            " between <search> and </search>; what the tool finds comes back between <result> and </result>, and you"
            " reason again. Search as often as you need to. Once you know enough, write your answer between <answer>"
            " and </answer>. At its end put the final answer, exact and as short as possible, inside \\boxed{}, as in"
            " LaTeX.\n"
            "An example of the form: <think> I have to find out where it was built. </think> <search> a query"
            " </search> <result> passages that the tool found </result> <think> They name the place. </think> <answer>"
            " It was built there, so the answer is \\boxed{the place} </answer>\n"
            f"Question: {neutralize(question)}\n"
        )

    def observation(self, passages: Sequence[Passage]) -> str:
        return f"\n\n<result>\n{listed(passages)}\n</result>\n\n"

    def parse(self, text: str) -> Action:
        action = Tags.parse(self, text)
        if action.kind is not ActionKind.ANSWER:
            return action
        boxed = last_box(action.text)
        if boxed is None:
            return Action(action.kind, action.text, False)
        return Action(action.kind, boxed, action.format_ok) if boxed else INVALID


def last_box(text: str) -> str | None:
    r"""Content of the complete `\boxed{…}` that opens last, braces balanced, or None. One linear pass."""
    open_braces: list[int | None] = []
    found: tuple[int, int] | None = None
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            open_braces.append(brace.end() if brace[0] != "{" else None)
        elif open_braces:
            start = open_braces.pop()
            if start is not None and (found is None or start > found[0]):
                found = (start, brace.start())
    return None if found is None else text[found[0] : found[1]].strip()
