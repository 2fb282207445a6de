"""A2TGPO: multi-turn search question answering with credit for every turn.

Importing the package is cheap: neither torch nor transformers is loaded until a module that needs it is imported.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
