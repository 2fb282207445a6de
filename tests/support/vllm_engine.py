"""A vLLM engine for tests, and policies that vLLM can run on a CPU (heads of 32)."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from a2tgpo.config import VLLMSettings
from a2tgpo.engines.vllm import VLLMEngine
from a2tgpo.policy import Policy
from tests.support.tiny_models import tiny_policy

MAX_TOKENS = 400

needs_vllm: Any = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
    pytest.mark.filterwarnings("ignore"),  # its own, many
]


def wide_policy(kind: str = "llama", tied: bool = False, seed: int = 0) -> Policy:
    return tiny_policy(kind, seed, tied, width=128)


@contextmanager
def running(policy: Policy, max_tokens: int = MAX_TOKENS, **settings: Any) -> Iterator[VLLMEngine]:
    """An engine that is shut down afterwards; a process can hold one at a time."""
    engine = VLLMEngine(policy, VLLMSettings(**({"kv_cache_gib": 0.25} | settings)), max_tokens)
    try:
        yield engine
    finally:
        engine.close()


def shake(policy: Policy, seed: int, size: float = 0.02) -> None:
    """Other weights, as after an update."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(size * torch.randn(weight.shape, generator=generator))
