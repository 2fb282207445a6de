"""An algorithm's answer, looked at before it is used: an algorithm may come from any file."""

import torch
from torch import Tensor

from a2tgpo.algorithms.base import Algorithm
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.errors import ConfigError


def checked_credit(algorithm: Algorithm, table: TurnTable) -> Credit:
    """`algorithm(table)`, checked.

    Raises:
        ConfigError: if the answer is no `Credit`, one of its tensors has another shape than the table, or holds a
            number that no loss can use: not finite, or a negative weight or clip scale.
    """
    name, credit = type(algorithm).__name__, algorithm(table)
    if not isinstance(credit, Credit):
        raise ConfigError(
            f"{name}.__call__: got {type(credit).__name__}, expected Credit; end it with `return Credit.of(advantage)`"
        )
    finite = ("advantage", credit.advantage, -torch.inf)
    for field, values, least in (finite, ("clip_scale", credit.clip_scale, 0.0), ("weight", credit.weight, 0.0)):
        _check(f"{name}: Credit.{field}", values, table, least)
    return credit


def _check(name: str, values: Tensor, table: TurnTable, least: float) -> None:
    expected = tuple(table.mask.shape)
    if not (isinstance(values, Tensor) and values.is_floating_point() and tuple(values.shape) == expected):
        got = f"{values.dtype} of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ConfigError(f"{name}: got {got}, expected floats of shape {expected}, one per episode and turn")
    wrong = ~(values.isfinite() & (values >= least)) & table.mask.to(values.device)
    if bool(wrong.any()):
        episode, turn = wrong.nonzero()[0].tolist()
        bound = "" if least == -torch.inf else f" of at least {least:g}"
        raise ConfigError(
            f"{name}: got {values[episode, turn].item():g} for turn {turn} of episode {episode}, expected a finite"
            f" number{bound}"
        )
