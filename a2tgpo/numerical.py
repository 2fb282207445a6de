"""Numbers that must not be used."""


class NumericalError(RuntimeError):
    """A number that must not be used (NaN, Inf, mismatched log-probabilities). The run stops; its last checkpoint is intact."""


class NonFiniteError(NumericalError):
    """A loss or gradient that is NaN or Inf: the one kind that a recipe may allow to be left out."""
