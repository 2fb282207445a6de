"""What can go wrong around this package's own code.

Every error that a user can cause or fix is a child of `A2TGPOError`: its message names the field, what was got, what
was expected and what to do next, and the command line prints it as one paragraph. Everything else is a fault of this
package and keeps its traceback.
"""


class A2TGPOError(Exception):
    """Base of all errors whose message is written for users."""


class ConfigError(A2TGPOError, ValueError):
    """A setting or argument that cannot be used."""


class DataError(A2TGPOError, ValueError):
    """A data file that cannot be used. The message names the file and, where there is one, the line."""


class RetrievalError(A2TGPOError, RuntimeError):
    """The search engine could not answer. The environment turns it into a labelled observation; it never ends a run.

    Args:
        transient: can asking again help?
    """

    def __init__(self, message: str, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


class NumericalError(A2TGPOError, RuntimeError):
    """A number that must not be used (NaN, Inf, mismatched log-probabilities). The run stops; its last checkpoint is
    intact.
    """


class NonFiniteError(NumericalError):
    """A loss or gradient that is NaN or Inf: the one kind that a recipe may allow to be left out."""


class EngineError(A2TGPOError, RuntimeError):
    """The engine broke, or does not hold the policy's weights. The run stops; its last checkpoint is intact."""


class RolloutError(A2TGPOError, RuntimeError):
    """Nothing of a step could be played. The run can be resumed once what broke is fixed."""


class CheckpointError(A2TGPOError, RuntimeError):
    """A checkpoint that must not be used, or could not be written. The message says which file is wrong and what to
    do.
    """
