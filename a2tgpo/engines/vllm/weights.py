"""The policy's weights in vLLM: handed over, and verified."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import EngineError
from a2tgpo.policy import Policy

SYNC_TOLERANCE = {torch.float32: ("largest", 1e-3), torch.bfloat16: ("mean", 0.3)}
"""How far vLLM's log-probabilities of the fixed sequence may be from the policy's, in nats; rounding alone gives 1e-5,
and 0.06 on average in bfloat16.
"""
_FIXED_TOKENS, _SCORED_TOKENS = 320, 24
"""The fixed sequence is long enough to fill blocks of the prefix cache, and the same each time: a stale cache would
show in the scores of its end.
"""

Score = Callable[[Sequence[Sequence[int]], Sequence[int]], list[list[float]]]
"""`VLLMEngine.score`."""


def hand_over(llm: Any, policy: Policy) -> None:
    """Replace vLLM's weights by the policy's, layer by layer, on whatever device either is."""
    llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(policy.model.state_dict().items())})
    if policy.model.config.tie_word_embeddings:
        llm.apply_model(_tie_again)


def check(llm: Any, score: Score, policy: Policy, longest: int, version: int) -> None:
    """Does vLLM hold the policy's weights?

    What it keeps under the same name and in the same shape must be equal, rounded to its type; a fixed sequence of at
    most `longest` tokens must score alike, which catches what it keeps packed or fused.

    Raises:
        EngineError: if not.
    """
    stale = llm.apply_model(_differing(policy.model.state_dict()))[0]
    if stale:
        raise EngineError(
            f"engine: after loading version {version}, vLLM's {stale[0]} differs from the policy's, expected equal"
            " weights"
        )
    kind, tolerance = SYNC_TOLERANCE[policy.dtype]
    difference = score_difference(score, policy, min(longest, _FIXED_TOKENS))
    worst = float(difference.max() if kind == "largest" else difference.mean())
    if not worst <= tolerance:
        raise EngineError(
            f"engine: after loading version {version}, vLLM's log-probabilities of a fixed sequence differ from the"
            f" policy's by {worst:.3g} nats ({kind}), expected at most {tolerance}; it holds other weights, or computes"
            " this model differently: use model.engine 'transformers'"
        )


def score_difference(score: Score, policy: Policy, length: int) -> Float[Tensor, " token"]:
    """|Δ log-probability| of the last tokens of a seeded random sequence of that length, in nats."""
    start = max(1, length - _SCORED_TOKENS)
    row = torch.randint(len(policy.tokenizer), (1, length), generator=torch.Generator().manual_seed(0)).to(
        policy.device
    )
    turn = torch.zeros_like(row)
    turn[0, :start] = -1
    batch = TokenBatch(row, torch.ones_like(row, dtype=torch.bool), turn, torch.zeros(row.shape, device=row.device))
    with torch.no_grad():
        expected = policy.token_logprobs(batch, entropy="skip").logprobs[0, start:].cpu()
    return (torch.tensor(score(row.tolist(), [start])[0]) - expected).abs()


def _tie_again(model: Any) -> None:
    """With tied embeddings, vLLM on a CPU keeps a packed copy of the output matrix, which a reload leaves as it was."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        model.lm_head.weight.data.copy_(model.model.embed_tokens.weight.data)
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def _differing(expected: dict[str, Tensor]) -> Callable[[Any], list[str]]:
    """Names of the weights that vLLM keeps under the same name and in the same shape, with other values."""

    def compare(model: Any) -> list[str]:
        kept = {
            name: weight
            for name, weight in model.named_parameters()
            if name in expected and weight.shape == expected[name].shape
        }
        return [
            name
            for name, weight in kept.items()
            if not torch.equal(weight, expected[name].to(weight.device, weight.dtype))
        ]

    return compare
