"""The forward pass of the policy's model with the engine's cache."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from a2tgpo.engines.transformers.cache import PositionCache
from a2tgpo.engines.transformers.llama import LeanForward

_LEAN = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that depend on the position alone."""

DecodeStep = Callable[[Tensor], Tensor]
"""Next token of each row [row] -> last hidden states [row width]."""


@runtime_checkable  # test runs check annotations with isinstance
class Forward(Protocol):
    """Runs the next tokens of the cache's first rows through the model; keys and values go to the cache."""

    def read(
        self,
        token_ids: Int[Tensor, "row query"],
        positions: Int[Tensor, "row query"],
        last: Int[Tensor, " row"],
        columns: int,
    ) -> Float[Tensor, "row width"]:
        """Last hidden state of one of its tokens for each row; `last` says which. For `positions` and `columns` see
        `PositionCache.place`.
        """
        ...

    def steps(self, last: Int[Tensor, " row"], columns: int, count: int) -> DecodeStep:
        """What reads one token of each row at a time, `count` times at most: the first at the positions behind `last`,
        and so on.

        Args:
            last: position of each row's last token in the cache.
            columns: the largest of them, and one.
        """
        ...


def forward_of(model: Any, cache: PositionCache) -> Forward:
    """The quickest forward with the model's present weights."""
    return LeanForward(model, cache) if is_lean(model) else ModelForward(model, cache)


def is_lean(model: Any) -> bool:
    """Does `LeanForward` compute what this model does: a known type with plain projections, fixed rotations, no sliding
    windows, all on one device?
    """
    layers = model.get_decoder().layers if type(model) in _LEAN else ()
    return (
        len(layers) > 0
        and model.config.hidden_act == "silu"
        and model.config.rope_parameters["rope_type"] in _FIXED_ROTATIONS
        and all(getattr(layer.self_attn, "sliding_window", None) is None for layer in layers)
        # no adapters, nothing quantised
        and all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in _PROJECTIONS)
        and len({weight.device for weight in model.parameters()}) == 1
    )


class ModelForward:
    """The model's own forward."""

    def __init__(self, model: Any, cache: PositionCache) -> None:
        self._decoder, self._cache = model.get_decoder(), cache
        names = inspect.signature(self._decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"  # renamed in transformers 5.2x

    def read(
        self,
        token_ids: Int[Tensor, "row query"],
        positions: Int[Tensor, "row query"],
        last: Int[Tensor, " row"],
        columns: int,
    ) -> Float[Tensor, "row width"]:
        visible = self._cache.place(positions, columns)
        output = self._decoder(
            input_ids=token_ids,
            attention_mask=visible,
            position_ids=positions,
            use_cache=True,
            **{self._cache_argument: self._cache.model_cache},
        )
        hidden: Tensor = output.last_hidden_state[torch.arange(len(last), device=last.device), last]
        return hidden

    def steps(self, last: Int[Tensor, " row"], columns: int, count: int) -> DecodeStep:
        ahead = iter(range(1, count + 1))

        def step(token_ids: Tensor) -> Tensor:
            done = next(ahead)
            return self.read(token_ids[:, None], (last + done)[:, None], torch.zeros_like(last), columns + done)

        return step
