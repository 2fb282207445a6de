"""Text to token ids and back, append only.

The token sequence of an episode only ever grows: the prompt is rendered once, an observation is encoded once when it is
shown, and what the policy sampled stays as it was sampled. A longer prompt therefore always starts with the shorter
one, whatever the chat template would do to earlier turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from a2tgpo.errors import ConfigError

_ACTION, _OBSERVATION = "\u2402ACTION\u2403", "\u2402OBSERVATION\u2403"


@dataclass(frozen=True)
class Chat:
    """Renders the texts of an environment for one tokenizer.

    With `chat_template`, the prompt is a user message followed by the generation prompt of the tokenizer's chat
    template. Observations stay inside the assistant's message as raw text, unless `tool_role` is set: then each is a
    message of the role `tool` between the template's own markers.
    """

    tokenizer: Any
    chat_template: bool = False
    tool_role: bool = False
    _known_ids: Callable[[str, bool], tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """Tokens of a text, remembered: a group shares its prompt, and episodes meet the same passages and notes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known_ids", lru_cache(maxsize=4096)(self._tokenize))
        if self.chat_template and not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                "model.chat_template: got true, but the model's tokenizer has no chat template; set it to false or use"
                " an instruct model"
            )

    def prompt_ids(self, text: str) -> list[int]:
        """Tokens of the prompt, with the tokenizer's own start token if it has one."""
        if not self.chat_template:
            return self._encode(text, add_special_tokens=True)
        rendered = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        return self._encode(rendered)

    def observation_ids(self, text: str, action_ids: Sequence[int]) -> list[int]:
        """Tokens of an observation that follows `action_ids`."""
        if not self.tool_role:
            return self._encode(text)
        before, after = self._tool_glue()
        end = self.tokenizer.eos_token
        if action_ids and action_ids[-1] == self.tokenizer.eos_token_id and before.startswith(end):
            before = before[len(end) :]  # the policy sampled the end of its message itself
        return self._encode(before + text + after)

    def action_ids(self, text: str) -> list[int]:
        """Tokens of an action that a script wrote; what a policy samples is never encoded."""
        return self._encode(text)

    def decode(self, action_ids: Sequence[int]) -> str:
        """Text of an action, without the end token. Only ever parsed, never encoded again."""
        ids = list(action_ids)
        if ids and ids[-1] == self.tokenizer.eos_token_id:
            ids.pop()
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def _encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(self._known_ids(text, add_special_tokens))

    def _tokenize(self, text: str, add_special_tokens: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])

    def _tool_glue(self) -> tuple[str, str]:
        """What the template writes between an action and a tool message, and after it up to the next action."""
        question: list[dict[str, str]] = [{"role": "user", "content": "question"}]
        exchange = [*question, {"role": "assistant", "content": _ACTION}, {"role": "tool", "content": _OBSERVATION}]
        rendered = self.tokenizer.apply_chat_template(exchange, tokenize=False, add_generation_prompt=True)
        head, found, after = rendered.partition(_OBSERVATION)
        _, also_found, before = head.partition(_ACTION)
        if not (found and also_found):
            raise ConfigError(
                "environment.protocol: this tokenizer's chat template drops tool messages; use the protocol `tags`"
            )
        return before, after
