"""All protocols by name."""

from a2tgpo.checks import did_you_mean
from a2tgpo.envs.protocols.base import Protocol
from a2tgpo.envs.protocols.tags import Boxed, Tags, TagsBrief
from a2tgpo.envs.protocols.tool_call import ToolCall
from a2tgpo.errors import ConfigError

PROTOCOLS: dict[str, Protocol] = {"tags": Tags(), "tags_brief": TagsBrief(), "boxed": Boxed(), "tool_call": ToolCall()}


def protocol_of(name: str | Protocol) -> Protocol:
    """The protocol of that name, or the protocol itself.

    Raises:
        ConfigError: for an unknown name.
    """
    if isinstance(name, Protocol):
        return name
    if not isinstance(name, str) or name not in PROTOCOLS:
        hint = did_you_mean(name, PROTOCOLS)
        raise ConfigError(f"protocol: got {name!r}, expected one of {', '.join(PROTOCOLS)} or a Protocol{hint}")
    return PROTOCOLS[name]
