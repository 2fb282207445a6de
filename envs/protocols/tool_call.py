"""Searching by JSON tool calls, as Qwen and Hermes chat templates write them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from a2tgpo.envs.data.rows import parse_json
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

TOOL = "search"
_TAG = re.compile(r"</?(?:think|answer|tool_call|tool_response)>")


@dataclass(frozen=True, slots=True)
class ToolCall(Protocol):
    """`<tool_call>{"name": "search", "arguments": {"query": …}}</tool_call>`, or `<answer>`.

    Observations are the content of a message of the role `tool`: the chat template writes the markers around them, and
    only ever behind what is there already, so a longer prompt starts with the shorter one even where the template would
    drop earlier thoughts. The thought is optional. JSON is read by a JSON parser; a call that is not JSON, names
    another tool or lacks a query is invalid.
    """

    name: ClassVar[str] = "tool_call"
    stop_strings: ClassVar[tuple[str, ...]] = ("</tool_call>", "</answer>")
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<answer>",
        "</answer>",
    )
    search_tag: ClassVar[str] = "<tool_call>"
    scaffold: ClassVar[tuple[str, str]] = (
        "<think>\nThe evidence is sufficient to answer.\n</think>\n\n<answer>",
        "</answer>",
    )
    observation_role: ClassVar[str] = "tool"

    def prompt(self, question: str) -> str:
        return (
            "You answer a question with the help of one tool, a search engine over an encyclopedia. To search, write a"
            " JSON call:\n"
            f'<tool_call>\n{{"name": "{TOOL}", "arguments": {{"query": "what to look for"}}}}\n</tool_call>\n'
            "The best matching passages come back as the tool's response. One call per turn; think first, and call as"
            " often as you need to. "
            "Once you know enough, write the final answer between <answer> and </answer>, as short as possible and"
            " without an explanation.\n"
            f"Question: {neutralize(question)}\n"
        )

    def observation(self, passages: Sequence[Passage]) -> str:
        return listed(passages)

    def corrective(self) -> str:
        return (
            "That turn held no valid action. Write one JSON call of the tool between <tool_call> and </tool_call>, "
            "or the final answer between <answer> and </answer>. Try again."
        )

    def retrieval_failure(self) -> str:
        return (
            "The search engine did not respond, so this query has no result. Search again, or answer with what you"
            " know."
        )

    def budget_spent(self) -> str:
        return "\nNo further search is possible. Write the final answer between <answer> and </answer>."

    def parse(self, text: str) -> Action:
        block = earliest_block(text, ("tool_call", "answer"))
        if block is None:
            return INVALID
        kind, start, begin, end = block
        before = text[:start]
        format_ok = not before.strip() or thought_only(before)
        if kind == "answer":
            content = clean_content(text[begin:end])
            return (
                Action(ActionKind.ANSWER, content, format_ok and not _TAG.search(text[begin:end]))
                if content
                else INVALID
            )
        query = _query(text[begin:end])
        return Action(ActionKind.SEARCH, query, format_ok) if query else INVALID


def _query(call: str) -> str:
    """The query of a tool call; "" if it is not a call of the search tool with one."""
    try:
        value = parse_json(call)
        arguments = value.get("arguments") if isinstance(value, Mapping) and value.get("name") == TOOL else None
        if isinstance(arguments, str):  # some models write the arguments as JSON inside JSON
            arguments = parse_json(arguments)
    except ValueError:
        return ""
    query: Any = arguments.get("query") if isinstance(arguments, Mapping) else None
    return clean_content(query) if isinstance(query, str) else ""
