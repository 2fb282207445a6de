"""How commands read their arguments: dataclasses, by tyro, with the ranges that stand beside their fields."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, TypeVar, cast

import tomli_w
import tyro

from a2tgpo.config.parsing import flat, ranges

_T = TypeVar("_T")

Repeated = tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]]
"""`--flag a b --flag c`: every use adds to the list."""
Inline = tyro.conf.arg(name="")
"""The fields of a record become options of their own."""


def parse(options: type[_T], words: Sequence[str], command: str, default: _T | None = None) -> _T:
    """Arguments as a dataclass. What is misspelt or missing ends the process with exit code 2 and a suggestion.

    Raises:
        ConfigError: for a number that is out of range.
    """
    given: dict[str, Any] = {} if default is None else {"default": default}
    return cast(_T, _parsed(options, words, command, given))


def choose(kinds: Mapping[str, type[_T]], words: Sequence[str], command: str) -> _T:
    """The same for a command with sub-commands: the dataclass that the first word names, with its arguments."""
    named = (Annotated[kind, tyro.conf.subcommand(name, prefix_name=False)] for name, kind in kinds.items())
    return cast(_T, _parsed(reduce(or_, named), words, command, {}))


def _parsed(kind: Any, words: Sequence[str], command: str, given: dict[str, Any]) -> Any:
    parsed = tyro.cli(kind, args=list(words), prog=f"a2tgpo {command}", registry=_REGISTRY, **given)
    for name, number, limits in ranges(parsed):
        limits.check(f"--{name.replace('_', '-')}", number)
    return parsed


_REGISTRY = tyro.constructors.ConstructorRegistry()


@_REGISTRY.primitive_rule
def _tables(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Options of one's own: `--algorithm-options ig_weight 0.1 loss.clip_low 0.2`, each value as TOML would read it."""
    if info.type != dict[str, Any]:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME VALUE …",
        instance_from_str=_table,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda table: [word for name, value in flat(table).items() for word in (name, _word(value))],
    )


def _table(words: list[str]) -> dict[str, Any]:
    if len(words) % 2:
        raise ValueError(f"expected pairs of a name and a value, got {len(words)} words")
    return {name: _value(word) for name, word in zip(words[::2], words[1::2], strict=True)}


def _value(word: str) -> Any:
    try:
        return tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:  # a text without quotes
        return {"True": True, "False": False}.get(word, word)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
