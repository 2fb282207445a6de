"""The embedded policy: a closed word vocabulary and a very small Llama.

A word-level vocabulary keeps an episode near a hundred tokens and makes a name one or two of them, so that copying a
name is something a two-layer model learns within a minute; sub-words cost three times the tokens and several times the
training.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from a2tgpo.checks import check_whole, did_you_mean
from a2tgpo.envs.almanac import DRAWN_RELATIONS, drawn_names
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
FRAME = ("question", ":", "what", "is", "'s", "?", ".")
"""The words that all questions and passages share."""
SIZES: Final[Mapping[str, int]] = {"layers": 2, "width": 64, "heads": 4, "context": 256}
"""What `model.options` may change, with what it is otherwise."""
_WORD = r"'s\b|\w+|[^\w\s]"


def tiny_vocabulary() -> list[str]:
    """Every word of the drawn worlds: frame, relations, and the names that any of them may use, in a fixed order."""
    names = (word.lower() for name in drawn_names() for word in name.split())
    return list(dict.fromkeys((*FRAME, *DRAWN_RELATIONS, *names)))


def word_tokenizer(words: Iterable[str], tags: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word and per tag; case is folded, spaces carry no meaning, other words become
    `<unk>`.

    Args:
        words: the closed vocabulary, lower-case.
        tags: protocol tags; each is one token wherever it stands, also without spaces around it.

    Raises:
        ConfigError: if a word would be split, so that it could never be produced from text.
    """
    vocabulary = list(words)
    split = [word for word in vocabulary if re.findall(_WORD, word) != [word] or word != word.lower()]
    if split:
        raise ConfigError(f"words: got {split[:5]}, expected lower-case words or single marks without a space inside")
    special = [PAD, END, UNKNOWN, *tags]
    ids = {token: index for index, token in enumerate([*special, *vocabulary])}
    backend = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


def check_sizes(options: Mapping[str, int | float]) -> None:
    """Check the recipe's `model.options`.

    Raises:
        ConfigError: if one is unknown or no positive whole number, or `width` is not a multiple of `heads` into even
            parts, as rotary positions need.
    """
    for name, value in options.items():
        if name not in SIZES:
            raise ConfigError(
                f"model.options: got {name!r}, expected some of {', '.join(SIZES)}{did_you_mean(name, SIZES)}"
            )
        check_whole(f"model.options.{name}", int(value) if float(value).is_integer() else value, 1)
    width, heads = (int(options.get(name, SIZES[name])) for name in ("width", "heads"))
    if width % heads or (width // heads) % 2:
        raise ConfigError(
            f"model.options: got width {width} and {heads} heads, expected a width that divides into heads of even size"
        )


def tiny_policy(
    tags: Sequence[str],
    seed: int = 0,
    *,
    layers: int = SIZES["layers"],
    width: int = SIZES["width"],
    heads: int = SIZES["heads"],
    context: int = SIZES["context"],
) -> Policy:
    """An untrained policy over the drawn worlds.

    Args:
        tags: tags of the environment's protocol.
        seed: of the initial weights.
        layers, width, heads: of the Llama; its feed-forward layers are twice as wide.
        context: longest episode in tokens.

    Raises:
        ConfigError: as `check_sizes`.
    """
    check_sizes({"layers": layers, "width": width, "heads": heads, "context": context})
    tokenizer = word_tokenizer(tiny_vocabulary(), tags)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return Policy(model.eval(), tokenizer)
