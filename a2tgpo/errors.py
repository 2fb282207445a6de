"""What can go wrong around this package's own code, and who is told how.

The rule: an error that a user can cause or fix is a child of `A2TGPOError`. Its message names the field, what was got,
what was expected and what to do next, and the command line prints it as one paragraph and exits with 2. Every other
exception, a ValueError or OSError as well, is a fault of this package: it keeps its traceback and ends with a line that
asks to report it (exit code 1). So what a user hands over is checked, and what other libraries raise about it is
converted, at the border where it comes in: arguments, recipes, files, folders, models, servers, code of one's own.
"""


class A2TGPOError(Exception):
    """Base of all errors whose message is written for users."""


class ConfigError(A2TGPOError, ValueError):
    """A setting or argument that cannot be used."""


class DataError(A2TGPOError, ValueError):
    """A data file that cannot be used. The message names the file and, where there is one, the line."""


class StorageError(A2TGPOError, OSError):
    """A file or folder that the system will not read or write: missing permissions, a full disk, a broken mount."""


class MissingExtraError(A2TGPOError, ImportError):
    """An optional package that is not installed. The message holds the command that installs it."""


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
