"""Information gain: how much each search told the policy about the gold answer."""

from a2tgpo.information_gain.measure import Measurement, measure

__all__ = ["Measurement", "measure"]
