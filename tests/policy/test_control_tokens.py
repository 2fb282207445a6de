"""No control token comes from a passage or a question, whatever the model."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from a2tgpo.envs import PROTOCOLS, Passage, Question, SearchQAEnv
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.policy.chat import Chat
from a2tgpo.policy.control_tokens import control_tokens, harmless_text

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# special tokens, added tokens that are not marked as special
FAMILIES: dict[str, tuple[list[str], list[str]]] = {
    "DeepSeek": (
        ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        ["<｜User｜>", "<｜Assistant｜>"],
    ),
    "Qwen": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "<tool_call>", "</tool_call>"]),
    "Llama": (["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], []),
    "Mistral": (["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"], []),
    "Gemma": (["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], []),
    "GLM": (["[gMASK]", "<sop>", "<|user|>"], ["<|observation|>"]),
    "MiniMax": (["]~!b[", "]~b]", "[e~["], []),
    "nested": (["<INST>", "[INST]", "(INST)"], []),
    "one character": (["\u2402", "§§"], []),
    "blanks": (["<eos>"], ["  ", "\n\n"]),
}
WORDS = "The end. a < b > c [1] (x) Zürich 東京 ｜ ▁ \n\n  2.5 | end_of_turn"


def tokenizer_of(family: str, normalizer: Any = None, template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    special, added = FAMILIES[family]
    vocabulary = {byte: place for place, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=special[-1])
    made.add_special_tokens({"additional_special_tokens": special[:-1]})
    made.add_tokens([AddedToken(token, special=False, normalized=normalizer is not None) for token in added])
    made.chat_template = template
    return made


def control_ids(tokenizer: PreTrainedTokenizerFast, but: str = "") -> set[int]:
    return {tokenizer.convert_tokens_to_ids(token) for token in control_tokens(tokenizer) if token not in but}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_control_token_comes_from_a_passage_or_a_question(family: str) -> None:
    special, added = FAMILIES[family]
    tokenizer = tokenizer_of(family)
    tokens = [token for token in special + added if token.strip()]
    assert control_tokens(tokenizer) == set(tokens)
    hostile = WORDS + " ".join(tokens) + "".join(tokens) + "".join(f"<{token}>[{token}]" for token in tokens)
    env = SearchQAEnv(
        [Question("q", hostile, ("a",))],
        Bm25Retriever([Passage("p", hostile, f"the {hostile}")]),
        top_k=1,
        protocol="tags_brief",
    )
    tags = "".join(PROTOCOLS["tags_brief"].tags)
    forbidden = control_ids(tokenizer, but=tags)
    chat = Chat(tokenizer)
    prompt, _ = env.reset()
    assert forbidden.isdisjoint(chat.prompt_ids(prompt))
    observation, *_ = env.step("<search>the</search>")
    assert "the" in observation
    assert forbidden.isdisjoint(chat.observation_ids(observation, []))
    in_template = Chat(tokenizer, chat_template=True)
    plain = SearchQAEnv([Question("q", "?", ("a",))], env.pool.retrievers, top_k=1, protocol="tags_brief")
    markers = [token for token in in_template.prompt_ids(plain.reset()[0]) if token in forbidden]
    assert [token for token in in_template.prompt_ids(prompt) if token in forbidden] == markers


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_without_a_control_token_stay_as_they_are(family: str) -> None:
    tokenizer = tokenizer_of(family)
    harmless = harmless_text(tokenizer, ())
    assert harmless(WORDS) == WORDS
    assert Chat(tokenizer).observation_ids(WORDS, []) == tokenizer(WORDS, add_special_tokens=False)["input_ids"]


@given(st.lists(st.sampled_from([*"<>[]()|｜▁ab", "INST", "[INST]", "<INST>", "(INST)"]), max_size=30))
@settings(max_examples=200, deadline=None)
def test_no_neighbourhood_makes_a_token(pieces: list[str]) -> None:
    tokenizer = tokenizer_of("nested")
    ids = Chat(tokenizer).observation_ids("".join(pieces), [])
    assert control_ids(tokenizer).isdisjoint(ids)


def test_folded_characters_make_no_token_either() -> None:
    tokenizer = tokenizer_of("Gemma", normalizers.NFKC())
    for token in FAMILIES["Gemma"][0]:
        wide = "".join(chr(ord(character) + 0xFEE0) for character in token)
        tokenizer.add_tokens([AddedToken(token, special=True, normalized=True)])
        assert control_ids(tokenizer).isdisjoint(Chat(tokenizer).observation_ids(f"a {wide} b", []))


def test_what_the_environment_writes_itself_keeps_its_tokens() -> None:
    tokenizer = tokenizer_of("Qwen")
    think, call = (tokenizer.convert_tokens_to_ids(token) for token in ("<think>", "<tool_call>"))
    ids = Chat(tokenizer).prompt_ids(PROTOCOLS["tool_call"].prompt("Who <|im_end|>?"))
    assert think not in ids
    assert call in ids
    assert tokenizer.eos_token_id not in ids
    handwritten = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    assert Chat(tokenizer, markup=handwritten).prompt_ids(handwritten) == tokenizer(handwritten)["input_ids"]
    assert control_ids(tokenizer).isdisjoint(Chat(tokenizer).prompt_ids(handwritten))
