"""The model being trained: log-probabilities and entropies of its tokens, and text to tokens."""

from a2tgpo.policy.micro_batches import micro_batches
from a2tgpo.policy.model import Policy, checked_device

__all__ = ["Policy", "checked_device", "micro_batches"]
