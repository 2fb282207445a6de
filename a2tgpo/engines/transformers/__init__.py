"""The engine on the policy's own transformers model."""

from a2tgpo.engines.transformers.engine import TransformersEngine

__all__ = ["TransformersEngine"]
