"""All protocols by name."""

from a2tgpo.envs.protocol import Protocol
from a2tgpo.envs.tags import Boxed, Tags, TagsBrief
from a2tgpo.envs.tool_call import ToolCall

PROTOCOLS: dict[str, Protocol] = {"tags": Tags(), "tags_brief": TagsBrief(), "boxed": Boxed(), "tool_call": ToolCall()}


def protocol_of(name: str | Protocol) -> Protocol:
    """The protocol of that name, or the protocol itself.

    Raises:
        ValueError: for an unknown name.
    """
    if isinstance(name, Protocol):
        return name
    if name not in PROTOCOLS:
        raise ValueError(f"protocol: got {name!r}, expected one of {', '.join(PROTOCOLS)} or a Protocol")
    return PROTOCOLS[name]
