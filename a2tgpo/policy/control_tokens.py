"""Control tokens of a tokenizer, kept out of foreign text: none may come from a passage or a question.

`<｜end▁of▁sentence｜>` in a passage, encoded as it stands, would be the token that ends a turn. Which texts have such a
power only the tokenizer knows: its special tokens, and those added tokens that its chat template writes or that look
like markup.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

_MARKUP = re.compile(r"[<\[].+[>\]]", re.DOTALL)
_ROUNDS = 3
"""Other brackets may make another control token: <INST>, [INST], (INST)."""
_BRACKETS = {"<": ("[", "]"), "[": ("(", ")")}


def control_tokens(tokenizer: Any) -> frozenset[str]:
    """Texts that the tokenizer turns into a control token."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    special = set(getattr(tokenizer, "all_special_tokens", []))
    added = tokenizer.added_tokens_decoder.values() if hasattr(tokenizer, "added_tokens_decoder") else []
    for token in added:
        if token.special or token.content in template or _MARKUP.fullmatch(token.content):
            special.add(token.content)
    return frozenset(token for token in special if token.strip())  # runs of blanks are text


def harmless_text(tokenizer: Any, own: Collection[str]) -> Callable[[str], str]:
    """A function that gives every control token in a text other brackets, or a space behind its first character.

    Args:
        own: control tokens that the environment writes itself; they stay.
    """
    tokens = sorted(control_tokens(tokenizer) - set(own), key=len, reverse=True)
    if not tokens:
        return str
    pattern = re.compile("|".join(map(re.escape, tokens)))

    def harmless(text: str) -> str:
        for _ in range(_ROUNDS):
            text = pattern.sub(lambda found: _defused(found[0]), text)
        text = pattern.sub("", text)
        if not text.isascii():  # a tokenizer may fold characters before it looks for tokens: ＜eos＞
            folded = unicodedata.normalize("NFKC", text)
            if pattern.search(folded):
                return harmless(folded)
        return text

    return harmless


def _defused(token: str) -> str:
    if token[0] in _BRACKETS and _MARKUP.fullmatch(token):
        opening, closing = _BRACKETS[token[0]]
        return f"{opening}{token[1:-1]}{closing}"
    return f"{token[0]} {token[1:]}" if len(token) > 1 else "\ufffd"
