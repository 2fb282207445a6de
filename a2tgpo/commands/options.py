"""How commands read their arguments: a recipe by name or file, then any setting of it."""

from collections.abc import Sequence
from typing import TypeVar

import tyro

from a2tgpo.config import load_recipe, recipe_names
from a2tgpo.errors import ConfigError

_T = TypeVar("_T")


def printable(text: str) -> str:
    """Text of a model, a passage or a person as it may go to a terminal: escape codes and other control characters
    become U+FFFD.
    """
    return "".join(
        character if character.isprintable() or character in "\n\t\u00a0" else "\ufffd" for character in text
    )


def split_recipe(words: Sequence[str], command: str) -> tuple[str, list[str]]:
    """The recipe (first word) and the rest.

    Raises:
        ConfigError: if there is no recipe.
    """
    if not words or words[0].startswith("-"):
        if any(word in ("-h", "--help") for word in words):
            return "quickstart", list(words)
        raise ConfigError(
            f"recipe: got none, expected `a2tgpo {command} RECIPE …` with a .toml file or one of"
            f" {', '.join(recipe_names())}"
        )
    return words[0], list(words[1:])


def parse(options: type[_T], words: Sequence[str], command: str, default: _T | None = None) -> _T:
    """Arguments as a dataclass; unknown ones end the process with exit code 2 and a suggestion."""
    if default is None:
        return tyro.cli(options, args=list(words), prog=f"a2tgpo {command}")
    return tyro.cli(options, args=list(words), prog=f"a2tgpo {command}", default=default)


def recipe_of(name: str) -> object:
    """Shorthand for commands that take a recipe's name among their options."""
    return load_recipe(name)
