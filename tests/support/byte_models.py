"""Tiny policies of random weights, with byte-level tokenizers trained on the spot."""

from functools import cache

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from a2tgpo.policy import Policy

TEXT = [
    "<think> The evidence is sufficient to answer. </think>\n<answer> Paris </answer>",
    "<search> Who founded the Köln Cathedral? </search><information> It was founded in 1248. </information>",
    "New York City, 東京, São Paulo, Zürich, naïve café, the the the, Eiffel Tower\n\n",
    "Question: in which year was the founder of the company born?\n",
] * 4


@cache
def byte_tokenizer(added_tags: bool = False) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    if added_tags:
        fast.add_tokens(["<search>", "</search>", "<answer>", "</answer>"])
    return fast


@cache
def byte_policy(kind: str = "llama", seed: int = 0, max_tokens: int = 1024, added_tags: bool = False) -> Policy:
    """Two layers, 32 wide, grouped key heads (qwen2: biases too; qwen3: wide, normalised heads); weights large enough
    that log-probabilities differ clearly.
    """
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer(added_tags)
    shape = {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": max_tokens,
        "initializer_range": 0.3,
    }
    match kind:
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**shape))
        case "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**shape, tie_word_embeddings=True))
        case _:
            model = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True, head_dim=16))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return Policy(model.eval(), tokenizer)
