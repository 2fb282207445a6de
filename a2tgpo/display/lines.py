"""Lines for a person at a terminal, or in a log."""

from rich.console import Console


def say(console: Console, *lines: str) -> None:
    """Print lines as they are: brackets are no markup, numbers are not coloured, nothing is wrapped or cut."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Text of a model, a passage or a person as it may go to a terminal: escape codes and other control characters
    become U+FFFD.
    """
    return "".join(
        character if character.isprintable() or character in "\n\t\u00a0" else "\ufffd" for character in text
    )
