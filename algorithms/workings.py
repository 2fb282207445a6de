"""The quantities between table and credit, in a form that can be printed: `Algorithm.workings` gives them and
`a2tgpo.algorithms.explain` prints them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Workings:
    """How an algorithm came to its credit."""

    columns: Mapping[str, Float[Tensor, "episode turn"]]
    """Printed column by column, in the order of the equations; NaN is printed as a dash."""
    formulas: tuple[str, ...]
    """One line per step."""
    with_gain: str
    """Arithmetic of the advantage of a turn with a gain: a format string over the columns and `advantage`."""
    without_gain: str
    """The same for other turns."""
