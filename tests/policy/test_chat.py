"""Rendering is append only: a longer prompt always starts with the shorter one."""

from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2tgpo.errors import ConfigError
from a2tgpo.policy.chat import Chat
from tests.support.tiny_models import WORDS, word_tokenizer

QWEN3_LIKE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last and '</think>' in"
    " m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{%"
    " if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template that strips the thoughts of earlier turns, as Qwen3's does."""
STRICT = (
    "{% for m in messages %}{% if m.role in ('system', 'tool') %}{{ raise_exception('no ' + m.role) }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start>{{ m.role }}\n{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<start>assistant\n{% endif %}"
)
"""A template that knows two roles, in turn, as Gemma's does."""
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


class Characters:
    """A tokenizer of single characters, with a chat template and an end token of its own."""

    eos_token, eos_token_id, chat_template = "<|im_end|>", 1_114_112, QWEN3_LIKE

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        ids: list[int] = []
        for index, piece in enumerate(text.split(self.eos_token)):
            ids += ([self.eos_token_id] if index else []) + [ord(character) for character in piece]
        return {"input_ids": ids}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.eos_token if token == self.eos_token_id else chr(token) for token in ids)

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool, **arguments: Any) -> str:
        environment = jinja2.Environment(autoescape=False)
        environment.globals["raise_exception"] = refuse  # as transformers has it
        return environment.from_string(self.chat_template).render(messages=messages, **arguments)


def refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


@given(st.lists(st.tuples(st.text(max_size=20), st.booleans(), st.text(max_size=20)), max_size=5))
@settings(max_examples=60, deadline=None)
def test_prompts_only_grow_and_thoughts_stay(turns: list[tuple[str, bool, str]]) -> None:
    tokenizer: Any = Characters()
    chat = Chat(tokenizer, chat_template=True, tool_role=True)
    ids = chat.prompt_ids("question")
    for thought, ended, observation in turns:
        before = list(ids)
        action = [ord(character) for character in f"<think>{thought}</think>x"] + (
            [tokenizer.eos_token_id] if ended else []
        )
        ids += action + chat.observation_ids(observation, action)
        assert ids[: len(before)] == before
        assert (
            f"<think>{thought}</think>x<|im_end|>\n<|im_start|>tool\n{observation}<|im_end|>\n<|im_start|>assistant\n"
            in tokenizer.decode(ids)
        )


def test_observations_are_plain_text_without_a_tool_role() -> None:
    chat = Chat(word_tokenizer())
    assert chat.observation_ids("<information> w1 </information>", [5]) == [
        WORDS.index(word) for word in ("<information>", "w1", "</information>")
    ]


def test_decode_drops_the_end_token_only() -> None:
    chat = Chat(word_tokenizer())
    ids = [WORDS.index(word) for word in ("<answer>", "w1", "</answer>", "<eos>")]
    assert chat.decode(ids).split() == ["<answer>", "w1", "</answer>"]


def test_template_that_is_missing_or_drops_tools_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"model\.chat_template: got true, but the model's tokenizer has no chat template"
    ):
        Chat(word_tokenizer(), chat_template=True)

    class NoTools(Characters):
        chat_template = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}"

    with pytest.raises(ValueError, match="drops tool messages"):
        Chat(NoTools(), chat_template=True, tool_role=True)


def ids_of(text: str) -> list[int]:
    return Characters()(text)["input_ids"]


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        # an action that a stop string ended leaves the assistant's message open
        ("<search> a </search>", "OBS"),
        # one that the policy ended itself is over: the observation is a message of its own
        ("<search> a </search><|im_end|>", "\n<|im_start|>user\nOBS<|im_end|>\n<|im_start|>assistant\n"),
        ("nothing<|im_end|>", "\n<|im_start|>user\nOBS<|im_end|>\n<|im_start|>assistant\n"),
        # ended by an end token that the template does not write
        ("nothing\u0003", "<|im_end|>\n<|im_start|>user\nOBS<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_an_observation_never_stands_outside_of_a_role(action: str, shown: str) -> None:
    tokenizer: Any = Characters()
    ends = frozenset({tokenizer.eos_token_id, 3})
    chat = Chat(tokenizer, chat_template=True, end_token_ids=ends)
    assert tokenizer.decode(chat.observation_ids("OBS", ids_of(action))) == shown
    raw = Chat(tokenizer, end_token_ids=ends)
    assert (
        tokenizer.decode(raw.observation_ids("OBS", ids_of(action))) == "OBS"
    )  # without a template there are no roles


@pytest.mark.parametrize(("ending", "text"), [("<|im_end|>", "x"), ("\u0003", "x"), ("\u0004", "x\u0004")])
def test_any_end_token_is_dropped_from_the_text(ending: str, text: str) -> None:
    tokenizer: Any = Characters()
    chat = Chat(tokenizer, end_token_ids=frozenset({tokenizer.eos_token_id, 3}))
    assert chat.decode(ids_of("x" + ending)) == text
    assert Chat(tokenizer).decode(ids_of("x<|im_end|>")) == "x"


class Strict(Characters):
    chat_template = STRICT


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"tool_role": True},
            r"refuses messages of the roles \['user', 'assistant', 'tool'\] \(no tool\); use the protocol",
        ),
        (
            {"system_prompt": "Be brief."},
            r"refuses messages of the roles \['system', .*\(no system\); leave model.system_p",
        ),
        ({}, ""),
    ],
)
def test_a_template_that_refuses_a_role_is_found_at_the_start(settings: dict[str, Any], told: str) -> None:
    tokenizer: Any = Strict()
    if not told:
        assert Chat(tokenizer, chat_template=True).prompt_ids("q") == ids_of("<start>user\nq<end>\n<start>assistant\n")
        return
    with pytest.raises(ValueError, match=told):
        Chat(tokenizer, chat_template=True, **settings)


def test_a_template_that_drops_the_system_prompt_is_found_at_the_start() -> None:
    class Deaf(Characters):
        chat_template = THINKING.replace("for m in messages", "for m in messages if m.role != 'system'")

    tokenizer: Any = Deaf()
    with pytest.raises(ConfigError, match=r"model\.system_prompt: this tokenizer's chat template drops it"):
        Chat(tokenizer, chat_template=True, system_prompt="Be brief.")


def test_tool_messages_need_a_template() -> None:
    with pytest.raises(ValueError, match=r"writes tool messages, but .* no chat template; use the protocol `tags`"):
        Chat(word_tokenizer(), tool_role=True)


def test_system_prompt_and_template_arguments_reach_the_template() -> None:
    class Thinking(Characters):
        chat_template = THINKING

    tokenizer: Any = Thinking()
    chat = Chat(tokenizer, chat_template=True, system_prompt="Be brief.", template_arguments={"enable_thinking": False})
    assert tokenizer.decode(chat.prompt_ids("q")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think></think>"
    )


@pytest.mark.parametrize(
    ("before", "after"), [([], []), ([1], []), ([], [2]), ([1], [2]), ([], [ord("q")]), ([], [2, 2])]
)
def test_a_raw_prompt_keeps_the_start_token_and_loses_what_would_end_it(before: list[int], after: list[int]) -> None:
    class Dressing(Characters):
        def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
            plain = ids_of(text)
            return {"input_ids": [*before, *plain, *after] if add_special_tokens else plain}

    tokenizer: Any = Dressing()
    assert Chat(tokenizer).prompt_ids("a q") == [*before, *ids_of("a q")]
