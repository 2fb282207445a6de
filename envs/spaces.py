"""A Gymnasium space of real text.

`gymnasium.spaces.Text` holds strings over a fixed, by default alphanumeric, character set: no space character, no
umlaut. This space holds any `str` up to a length. It batches to a tuple of strings and crosses process borders through
shared memory as UTF-8.
"""

from collections.abc import Iterable, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.sharedctypes import RawArray
from typing import Any, overload

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from a2tgpo.checks import check_whole
from a2tgpo.errors import ConfigError

_SAMPLE_LENGTH = 64
_SAMPLE_ALPHABET = tuple("abcdefghijklmnopqrstuvwxyz ABC 0123456789 .,?!-'\"<>/ äöüßéñçøʻ αβγ 東京 🙂\n")
_LENGTH_BYTES = 8
_UTF8_BYTES = 4


class UnicodeText(Space[str]):
    """Any string of at most `max_length` characters (code points).

    Raises:
        ConfigError: if `max_length` is not positive.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        self.max_length = check_whole("UnicodeText.max_length", max_length, 1)
        super().__init__(shape=(), dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """A random short text. Masks have no meaning here.

        Raises:
            ConfigError: if a mask or probability is given.
        """
        if mask is not None or probability is not None:
            raise ConfigError("UnicodeText.sample: got a mask or probability, expected neither; any text is allowed")
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        return "".join(_SAMPLE_ALPHABET[i] for i in self.np_random.integers(0, len(_SAMPLE_ALPHABET), size=length))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def to_jsonable(self, sample_n: Iterable[str]) -> list[Any]:
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        return [str(text) for text in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash((UnicodeText, self.max_length))

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: BaseContext | Any = None) -> Any:
    """`n` slots of: byte length (8 bytes), then UTF-8."""
    return RawArray("B", n * _slot_size(space))


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    data = value.encode("utf-8", "surrogatepass")
    payload = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    offset = index * _slot_size(space)
    memory = memoryview(shared_memory).cast("B")
    memory[offset : offset + len(payload)] = payload


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: Any, n: int = 1) -> "_SharedTexts":
    return _SharedTexts(space, shared_memory, n)


class _SharedTexts(Sequence[str]):
    """The texts that lie in shared memory now. `AsyncVectorEnv` reads once and then relies on the result to follow the
    memory; its copies are plain tuples.
    """

    def __init__(self, space: UnicodeText, shared_memory: Any, n: int) -> None:
        self._space, self._memory, self._n = space, memoryview(shared_memory).cast("B"), n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._n)))
        if not -self._n <= index < self._n:
            raise IndexError(index)
        start = index % self._n * _slot_size(self._space) + _LENGTH_BYTES
        length = int.from_bytes(self._memory[start - _LENGTH_BYTES : start], "little")
        return bytes(self._memory[start : start + length]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _slot_size(space: UnicodeText) -> int:
    return _LENGTH_BYTES + _UTF8_BYTES * space.max_length
