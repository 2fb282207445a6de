"""A recipe's policy and its way from text to tokens."""

from pathlib import Path
from typing import Any, Final

import torch

from a2tgpo.config import ModelSettings
from a2tgpo.envs import Protocol
from a2tgpo.policy.chat import Chat
from a2tgpo.policy.model import Policy

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""The types that a recipe can name."""


def load_policy(settings: ModelSettings, folder: Path) -> Policy:
    """The model in a folder, on the device and in the type that a recipe names. The process gets the recipe's number
    of threads.

    Raises:
        ConfigError: as `Policy.load`.
    """
    torch.set_num_threads(settings.threads)
    return Policy.load(folder, DTYPES[settings.dtype], settings.device)


def chat_of(settings: ModelSettings, policy: Policy, protocol: Protocol, instructions: str | None = None) -> Chat:
    """How a recipe's environment is written for its model.

    Args:
        instructions: the prompt's text, if it is not the protocol's own; control tokens in it are meant.

    Raises:
        ConfigError: if the tokenizer has no chat template where one is needed, or a template that refuses its messages.
    """
    return chat_over(settings, policy.tokenizer, protocol, policy.end_token_ids, instructions)


def chat_over(
    settings: ModelSettings,
    tokenizer: Any,
    protocol: Protocol,
    end_token_ids: frozenset[int] | None = None,
    instructions: str | None = None,
) -> Chat:
    """The same from a tokenizer alone; raises as `chat_of`."""
    return Chat(
        tokenizer,
        settings.chat_template,
        tool_role=protocol.observation_role == "tool",
        end_token_ids=end_token_ids,
        system_prompt=settings.system_prompt,
        template_arguments=settings.template_arguments,
        markup=f"{' '.join(protocol.tags)} {instructions or ''}",
    )
