"""Engines: what generates text for the policy."""

from a2tgpo.engines.base import Engine, Sample, Sampling, generate
from a2tgpo.engines.choice import check_engine, engine_of

__all__ = ["Engine", "Sample", "Sampling", "check_engine", "engine_of", "generate"]
