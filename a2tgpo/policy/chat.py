"""Text to token ids and back, append only.

The token sequence of an episode only ever grows: the prompt is rendered once, an observation is encoded once when it is
shown, and what the policy sampled stays as it was sampled. A longer prompt therefore always starts with the shorter
one, whatever the chat template would do to earlier turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from a2tgpo.envs import PROTOCOLS
from a2tgpo.errors import ConfigError
from a2tgpo.policy.control_tokens import control_tokens, harmless_text

_TAGS = frozenset(tag for protocol in PROTOCOLS.values() for tag in protocol.tags)
_ACTION, _OBSERVATION = "\u2402ACTION\u2403", "\u2402OBSERVATION\u2403"


@dataclass(frozen=True)
class Chat:
    """Renders the texts of an environment for one tokenizer.

    With `chat_template`, the prompt is a user message, behind the system prompt if there is one, followed by the
    generation prompt of the tokenizer's chat template. An observation is then

    - with `tool_role`, a message of the role `tool`;
    - behind an action that the policy ended with an end token, a message of the role `user`: its own message is over;
    - behind one that was ended by a stop string, raw text inside the assistant's message, which is still open.

    Without a template everything is raw text.

    Texts of the environment hold passages and questions, out of which no control token may come: all are written with
    other brackets, but for the tags of the built-in protocols (which environments keep out of foreign text themselves)
    and `markup`.

    Raises:
        ConfigError: if the tokenizer has no template where one is needed, or its template refuses one of these
            messages.
    """

    tokenizer: Any
    chat_template: bool = False
    tool_role: bool = False
    end_token_ids: frozenset[int] | None = None
    """What ends a turn (`Policy.end_token_ids`); by default the tokenizer's end token."""
    system_prompt: str = ""
    template_arguments: Mapping[str, object] = field(default_factory=dict)
    """Passed to the template, such as Qwen3's `enable_thinking`."""
    markup: str = ""
    """Text with the control tokens that the environment writes on purpose: tags of a protocol of one's own, a prompt
    with the model's markers in it.
    """
    _harmless: Callable[[str], str] = field(init=False, repr=False, compare=False)
    _known_ids: Callable[[str, bool], tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """Tokens of a text, remembered: a group shares its prompt, and episodes meet the same passages and notes."""
    _glue: Mapping[str, tuple[str, str]] = field(init=False, repr=False, compare=False)
    """Role -> what the template writes between an action and a message of that role, and after it up to the next
    action.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known_ids", lru_cache(maxsize=4096)(self._tokenize))
        own = {token for token in control_tokens(self.tokenizer) if token in _TAGS or token in self.markup}
        object.__setattr__(self, "_harmless", lru_cache(maxsize=4096)(harmless_text(self.tokenizer, own)))
        if self.end_token_ids is None:
            object.__setattr__(self, "end_token_ids", frozenset({self.tokenizer.eos_token_id} - {None}))
        if (self.chat_template or self.tool_role) and not getattr(self.tokenizer, "chat_template", None):
            setting, remedy = (
                ("model.chat_template: got true", "set it to false")
                if self.chat_template
                else ("environment.protocol: got one that writes tool messages", "use the protocol `tags`")
            )
            raise ConfigError(
                f"{setting}, but the model's tokenizer has no chat template; {remedy} or use an instruct model"
            )
        roles = [*(["tool"] if self.tool_role else []), *(["user"] if self.chat_template else [])]
        object.__setattr__(self, "_glue", {role: self._glue_of(role) for role in roles})
        if self.chat_template:
            rendered = self._rendered([self._question("question")])
            if self.system_prompt.strip() not in rendered:
                raise ConfigError(
                    "model.system_prompt: this tokenizer's chat template drops it; write it into the prompt's text"
                    " (environment.instructions) instead"
                )

    def prompt_ids(self, text: str) -> list[int]:
        """Tokens of the prompt, with the tokenizer's own start token if it has one, and never an end token."""
        text = self._harmless(text)
        if self.chat_template:
            return self._encode(self._rendered([self._question(text)]))
        plain, dressed = self._encode(text), self._encode(text, add_special_tokens=True)
        for start in range(len(dressed) - len(plain) + 1):
            if dressed[start : start + len(plain)] == plain:
                return dressed[: start + len(plain)]  # what stands behind would end the prompt
        return dressed

    def observation_ids(self, text: str, action_ids: Sequence[int]) -> list[int]:
        """Tokens of an observation that follows `action_ids`."""
        text = self._harmless(text)
        ended = bool(action_ids) and action_ids[-1] in self._ends
        role = "tool" if self.tool_role else "user" if self.chat_template and ended else None
        if role is None:
            return self._encode(text)
        before, after = self._glue[role]
        if ended:  # the policy sampled the end of its message itself
            before = before.removeprefix(self.tokenizer.decode([action_ids[-1]], skip_special_tokens=False))
        return self._encode(before + text + after)

    def action_ids(self, text: str) -> list[int]:
        """Tokens of an action that a script wrote; what a policy samples is never encoded."""
        return self._encode(text)

    def decode(self, action_ids: Sequence[int]) -> str:
        """Text of an action, without the end token. Only ever parsed, never encoded again."""
        ids = list(action_ids)
        if ids and ids[-1] in self._ends:
            ids.pop()
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    @property
    def _ends(self) -> frozenset[int]:
        assert self.end_token_ids is not None
        return self.end_token_ids

    def _encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(self._known_ids(text, add_special_tokens))

    def _tokenize(self, text: str, add_special_tokens: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])

    def _question(self, text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    def _rendered(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The messages behind the system prompt, up to where the policy writes.

        Raises:
            ConfigError: if the template refuses them.
        """
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        try:
            rendered: str = self.tokenizer.apply_chat_template(
                [*system, *messages], tokenize=False, add_generation_prompt=True, **self.template_arguments
            )
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            roles = list(dict.fromkeys(message["role"] for message in [*system, *messages]))
            remedy = (
                "use the protocol `tags`"
                if "tool" in roles
                else "leave model.system_prompt and model.template_arguments out, or set model.chat_template to false"
            )
            raise ConfigError(
                f"environment.protocol: this tokenizer's chat template refuses messages of the roles {roles} ({error});"
                f" {remedy}"
            ) from error
        return rendered

    def _glue_of(self, role: str) -> tuple[str, str]:
        exchange = [{"role": "assistant", "content": _ACTION}, {"role": role, "content": _OBSERVATION}]
        head, found, after = self._rendered([self._question("question"), *exchange]).partition(_OBSERVATION)
        _, also_found, before = head.partition(_ACTION)
        if not (found and also_found):
            raise ConfigError(
                f"environment.protocol: this tokenizer's chat template drops {role} messages; use the protocol `tags`"
                " without a chat template, or another model"
            )
        return before, after
