"""Algorithms: from a table of turns to credit per turn.

To add one, write a frozen dataclass that derives from `Algorithm`, give it its published `loss`, turn the table into credit in `__call__`, and name it below;
the loop needs no change. An algorithm of your own need not live here: `load_algorithm("path.py:Class")` takes it from any file.
"""

from typing import Final

from a2tgpo.algorithms.a2tgpo import A2TGPO
from a2tgpo.algorithms.aggregation import Denominators, denominators
from a2tgpo.algorithms.base import Algorithm
from a2tgpo.algorithms.gigpo import GiGPO
from a2tgpo.algorithms.grpo import GRPO
from a2tgpo.algorithms.igpo import IGPO
from a2tgpo.algorithms.losses import LossInputs, LossSpec, PolicyLoss, compute_loss, policy_loss

ALGORITHMS: Final[dict[str, type[Algorithm]]] = {
    "grpo": GRPO,
    "gigpo": GiGPO,
    "igpo": IGPO,
    "a2tgpo": A2TGPO,
}

__all__ = [
    "A2TGPO",
    "ALGORITHMS",
    "GRPO",
    "IGPO",
    "Algorithm",
    "Denominators",
    "GiGPO",
    "LossInputs",
    "LossSpec",
    "PolicyLoss",
    "compute_loss",
    "denominators",
    "policy_loss",
]
