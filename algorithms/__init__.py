"""Algorithms: from a table of turns to credit per turn.

To add one, write a frozen dataclass that derives from `Algorithm`, give it its published `loss`, turn the table into
credit in `__call__`, and name it below; the loop needs no change. An algorithm of your own need not live here:
`a2tgpo.algorithms.loader.load_algorithm("path.py:Class")` takes it from any file.
"""

from typing import Final

from a2tgpo.algorithms.a2tgpo import A2TGPO
from a2tgpo.algorithms.a2tgpo_released import A2TGPOReleased
from a2tgpo.algorithms.aggregation import Denominators, denominators
from a2tgpo.algorithms.at2po import AT2PO
from a2tgpo.algorithms.base import Algorithm
from a2tgpo.algorithms.credit import checked_credit
from a2tgpo.algorithms.dapo import DAPO
from a2tgpo.algorithms.gain import GainAlgorithm
from a2tgpo.algorithms.gigpo import GiGPO
from a2tgpo.algorithms.grpo import CISPO, GRPO, GSPO, DeepSeekMathGRPO, DrGRPO
from a2tgpo.algorithms.igpo import IGPO, IGPOReleased
from a2tgpo.algorithms.losses import LossInputs, LossSpec, PolicyLoss, compute_loss, policy_loss
from a2tgpo.algorithms.mt_grpo import MTGRPO
from a2tgpo.algorithms.reinforce import ReinforcePlusPlus, ReinforcePlusPlusBaseline
from a2tgpo.algorithms.rloo import RLOO
from a2tgpo.checks import did_you_mean
from a2tgpo.errors import ConfigError


class _Named(dict[str, type[Algorithm]]):
    """A dictionary that answers a misspelt name with the nearest one."""

    def __missing__(self, name: object) -> type[Algorithm]:
        raise ConfigError(f"algorithm: got {name!r}, expected one of {', '.join(self)}{did_you_mean(name, self)}")


ALGORITHMS: Final = _Named(
    {
        "a2tgpo": A2TGPO,
        "igpo": IGPO,
        "gigpo": GiGPO,
        "grpo": GRPO,
        "grpo_deepseekmath": DeepSeekMathGRPO,
        "dr_grpo": DrGRPO,
        "dapo": DAPO,
        "gspo": GSPO,
        "cispo": CISPO,
        "rloo": RLOO,
        "reinforce_plus_plus": ReinforcePlusPlus,
        "reinforce_plus_plus_baseline": ReinforcePlusPlusBaseline,
        "mt_grpo": MTGRPO,
        "at2po": AT2PO,
        "a2tgpo_released": A2TGPOReleased,
        "igpo_released": IGPOReleased,
    }
)
"""All algorithms by the name that a recipe gives them."""

__all__ = [
    "A2TGPO",
    "ALGORITHMS",
    "AT2PO",
    "CISPO",
    "DAPO",
    "GRPO",
    "GSPO",
    "IGPO",
    "MTGRPO",
    "RLOO",
    "A2TGPOReleased",
    "Algorithm",
    "DeepSeekMathGRPO",
    "Denominators",
    "DrGRPO",
    "GainAlgorithm",
    "GiGPO",
    "IGPOReleased",
    "LossInputs",
    "LossSpec",
    "PolicyLoss",
    "ReinforcePlusPlus",
    "ReinforcePlusPlusBaseline",
    "checked_credit",
    "compute_loss",
    "denominators",
    "policy_loss",
]
