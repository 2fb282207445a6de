"""Rendering is append only: a longer prompt always starts with the shorter one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2tgpo.policy.chat import Chat
from tests.support.tiny_models import WORDS, word_tokenizer

QWEN3_LIKE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last and '</think>' in"
    " m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{%"
    " if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template that strips the thoughts of earlier turns, as Qwen3's does."""


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

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool) -> str:
        import jinja2

        return (
            jinja2.Environment(autoescape=False)
            .from_string(QWEN3_LIKE)
            .render(messages=messages, add_generation_prompt=add_generation_prompt)
        )


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
        def apply_chat_template(
            self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
        ) -> str:
            return "".join(message["content"] for message in messages if message["role"] != "tool")

    with pytest.raises(ValueError, match="drops tool messages"):
        Chat(NoTools(), chat_template=True, tool_role=True).observation_ids("x", [])
