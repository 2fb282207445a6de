"""Tiny models with random weights and a small word-level tokenizer."""

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from a2tgpo.policy import Policy

TAGS = ["<search>", "</search>", "<answer>", "</answer>", "<information>", "</information>"]
WORDS = ["<pad>", "<eos>", "<unk>", *TAGS, *[f"w{number}" for number in range(31)]]


def word_tokenizer() -> Any:
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", additional_special_tokens=TAGS
    )


def tiny_policy(kind: str = "llama", seed: int = 0, tied: bool = False, width: int = 32) -> Policy:
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": len(WORDS),
        "eos_token_id": WORDS.index("<eos>"),
        "hidden_size": width,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        # wide enough that the distributions are far from uniform and a wrong cache shows
        "initializer_range": 0.25 * (32 / width) ** 0.5,
    }
    model = LlamaForCausalLM(LlamaConfig(**sizes)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**sizes))
    return Policy(model.eval(), word_tokenizer())
