"""Where generation of a row ends, decided on token level."""

from collections.abc import Iterable, Sequence
from typing import Any


class Stops:
    """Ends a row with an end token, or with the token that completes a stop string.

    A tag that is one token is found by its id; one that is spread over several tokens by decoding the row's tail, which
    happens only after tokens that could complete it.
    """

    def __init__(self, tokenizer: Any, strings: Sequence[str], end_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._strings = tuple(strings)
        ids = [tokenizer(string, add_special_tokens=False)["input_ids"] for string in strings]
        self.token_ids: set[int] = {row[0] for row in ids if len(row) == 1} | set(end_token_ids)
        """What ends a row by itself."""
        self._tail = max((len(string) for string in strings), default=0) + 2
        self.texts: tuple[str, ...] = () if all(len(row) == 1 for row in ids) else self._strings
        """What must be looked for in the text, since some of it is spread over several tokens."""
        self.candidates: set[int] = self.token_ids | (self._tokens_that_may_close() if self.texts else set())
        """No other token ends a row."""

    def _tokens_that_may_close(self) -> set[int]:
        last = {string[-1] for string in self._strings}
        texts = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))])
        return {token for token, text in enumerate(texts) if last & set(text)}

    def completed(self, token_ids: Sequence[int]) -> bool:
        """Does the last of these tokens end the row?"""
        token = token_ids[-1]
        if token in self.token_ids or token not in self.candidates:
            return token in self.token_ids
        text = self._tokenizer.decode(list(token_ids[-self._tail :]), skip_special_tokens=False)
        return any(string in text for string in self._strings)
