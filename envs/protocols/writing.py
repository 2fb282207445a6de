"""Actions written in any protocol, for agents that decide what to do without writing text themselves."""

import json

from a2tgpo.envs.protocols.base import Protocol, clean_content, neutralize
from a2tgpo.episode import ActionKind
from a2tgpo.errors import ConfigError

UNKNOWN = "unknown"
"""Written where there is nothing to say: an empty query or answer would be no action at all."""
_NO_BRACES = str.maketrans("", "", "{}")


def written_search(protocol: Protocol, query: str, thought: str = "This has to be looked up.") -> str:
    """A search as this protocol writes it, in a form that it accepts without a complaint.

    Raises:
        ConfigError: if the protocol reads none of the forms known here.
    """
    content = clean_content(neutralize(query)) or UNKNOWN
    call = json.dumps({"name": "search", "arguments": {"query": content}}, ensure_ascii=False)
    think = f"<think> {thought} </think>\n"
    for text in (
        f"{think}<search> {content} </search>",
        f"<search> {content} </search>",
        f"{think}<tool_call>\n{call}\n</tool_call>",
    ):
        action = protocol.parse(text)
        if action.kind is ActionKind.SEARCH and action.text == content and action.format_ok:
            return text
    raise ConfigError(
        f"protocol: got {protocol.name!r}, expected one that reads <search> or a JSON tool call; agents without a"
        " language model write no other"
    )


def written_answer(protocol: Protocol, text: str, thought: str = "") -> str:
    """An answer as this protocol writes it."""
    before, after = protocol.scaffold
    if thought:
        before = before.replace("The evidence is sufficient to answer.", thought)
    content = clean_content(neutralize(text)) or UNKNOWN
    whole = f"{before}{content}{after}"
    if protocol.parse(whole).text == content:
        return whole
    return f"{before}{content.translate(_NO_BRACES) or UNKNOWN}{after}"  # unbalanced braces would end a box
