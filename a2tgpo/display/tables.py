"""Tables in the terminal. Numbers are never broken over lines: only the first column folds."""

from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LABEL_WIDTH = 12
"""Least width of the first column, beside which seven columns of numbers fit into 80."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", caption: str = "") -> Table:
    """A table whose first column is text, to the left, and all others numbers, to the right."""
    made = Table(
        title=Text(title) if title else None,
        caption=Text(caption) if caption else None,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, name in enumerate(head):
        widest = max(cell_len(row[place]) for row in [head, *rows])
        if place == 0:
            made.add_column(Text(name), min_width=min(widest, LABEL_WIDTH), overflow="fold")
        else:
            made.add_column(Text(name), justify="right", min_width=widest)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def show(console: Console, made: Table) -> None:
    """Print a table; in a terminal too narrow for its numbers, the lines go on beyond the edge."""
    needed = Measurement.get(console, console.options.update(width=1000), made).minimum
    console.print(made, width=max(console.width, needed), crop=False)


def as_text(made: Table) -> str:
    """The table as plain text, at its own width."""
    text = StringIO()
    console = Console(file=text, width=1000)
    console.print(made, width=Measurement.get(console, console.options, made).maximum)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))
