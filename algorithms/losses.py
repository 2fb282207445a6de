"""The policy loss: ratio, clip, aggregation, distance to a reference, entropy bonus. Pure functions of tensors."""

from dataclasses import dataclass, fields
from typing import Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from a2tgpo.algorithms.aggregation import AGGREGATIONS, Denominators, aggregate, denominators
from a2tgpo.algorithms.ratios import (
    KL_ESTIMATORS,
    RATIOS,
    importance_ratio,
    kl_estimate,
    merge_equal_turns,
    sampler_weight,
)
from a2tgpo.checks import KnownFields, choice_field, flag_field, number_field
from a2tgpo.errors import ConfigError

SURROGATES: Final = ("clip", "cispo")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec(KnownFields):
    """Which loss an algorithm trains with. Each algorithm carries its published one; a recipe may override any field.

    Raises:
        ConfigError: on an unknown name or a number out of its range, e.g. a negative clip width.
    """

    ratio: str = "token"
    """Importance ratio per `token`, per `turn` or per `sequence`."""
    surrogate: str = "clip"
    """`clip`: −min(ρA, clip(ρ)A). `cispo`: −sg(clip(ρ))·A·log π_θ."""
    clip_low: float = 0.2
    """ε_low: the ratio is clipped from below at 1 − c·ε_low, c being the turn's clip scale."""
    clip_high: float = 0.2
    """ε_high: clipped from above at 1 + c·ε_high."""
    dual_clip: float | None = None
    """Bounds the loss of a token with A < 0 by −dual_clip·A; above 1. `None` = no bound."""
    aggregation: str = "token-mean"
    """One of `AGGREGATIONS`."""
    divisor: float | None = None
    """Constant of seq-mean-token-sum-norm, in tokens; `None` for all other aggregations."""
    kl: str = "none"
    """Estimator of the distance to the reference model (k1, k2, k3); with `none` no reference model is loaded."""
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    importance_cap: float | None = None
    """Multiplies each token's loss by min(π_old/π_sampler, cap), published cap 2; `None` = only measured, not applied.
    """
    merge_equal_turns: bool = False
    """Find turns by changes of the advantage, as A2TGPO's released code does. For parity studies only."""

    def __post_init__(self) -> None:
        choice_field(self, "ratio", RATIOS)
        choice_field(self, "surrogate", SURROGATES)
        choice_field(self, "aggregation", AGGREGATIONS)
        choice_field(self, "kl", KL_ESTIMATORS)
        for field in ("clip_low", "clip_high", "kl_coefficient", "entropy_coefficient"):
            number_field(self, field, low=0.0)
        if self.dual_clip is not None:
            number_field(self, "dual_clip", low=1.0)
        if self.importance_cap is not None:
            number_field(self, "importance_cap", low=0.0)
        flag_field(self, "merge_equal_turns")
        if (self.divisor is not None) != (self.aggregation == "seq-mean-token-sum-norm"):
            raise ConfigError(
                f"LossSpec.divisor: got {self.divisor} with aggregation {self.aggregation!r}, expected a number with"
                " seq-mean-token-sum-norm only"
            )
        if self.divisor is not None:
            number_field(self, "divisor", low=1e-6)
        if (self.kl == "none") != (self.kl_coefficient == 0):
            raise ConfigError(
                f"LossSpec.kl_coefficient: got {self.kl_coefficient} with kl={self.kl!r}, expected both or neither; set"
                " kl to k1, k2 or k3"
            )


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What the loss of a micro-batch is made of, per token. A micro-batch holds whole rows, so that turn and sequence
    ratios are complete.

    Raises:
        ConfigError: on a shape that differs from that of `mask`, or a policy token without a turn.
    """

    logprobs: Float[Tensor, "episode token"]
    """log π_θ of each token given what came before it; the only tensor with a gradient besides `entropy`."""
    old_logprobs: Float[Tensor, "episode token"]
    """log π_old: the policy that the batch was sampled with, under the trainer."""
    advantage: Float[Tensor, "episode token"]
    clip_scale: Float[Tensor, "episode token"]
    turn: Int[Tensor, "episode token"]
    """Turn that sampled the token, -1 for all others."""
    mask: Bool[Tensor, "episode token"]
    """True on the policy's tokens; all other values may be anything, NaN included."""
    weight: Float[Tensor, "episode token"] | None = None
    """Multiplies the token's loss (1 if absent); 0 takes the token out of the loss and of the denominators."""
    sampler_logprobs: Float[Tensor, "episode token"] | None = None
    """Log-probability under the engine that sampled the token."""
    reference_logprobs: Float[Tensor, "episode token"] | None = None
    entropy: Float[Tensor, "episode token"] | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.mask.shape)
        for name in (field.name for field in fields(self)):
            value: Tensor | None = getattr(self, name)
            if value is not None and tuple(value.shape) != shape:
                raise ConfigError(
                    f"policy loss: {name}: got shape {tuple(value.shape)}, expected {shape} (episode, token) as"
                    " `mask` has"
                )
        if bool((self.mask & (self.turn < 0)).any()):
            raise ConfigError(
                "policy loss: turn: got -1 on a policy token, expected the turn that sampled it wherever `mask` is true"
            )

    @property
    def trained(self) -> Bool[Tensor, "episode token"]:
        """Policy tokens of non-zero weight."""
        return self.mask if self.weight is None else self.mask & (self.weight != 0)


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The loss of a micro-batch, to call `backward()` on, and what happened token by token (detached)."""

    loss: Float[Tensor, ""]
    """surrogate + kl_coefficient · kl − entropy_coefficient · entropy; losses of micro-batches add up to the
    mini-batch's.
    """
    surrogate: Float[Tensor, ""]
    kl: Float[Tensor, ""]
    """Mean distance to the reference under the same aggregation; 0 without a reference."""
    entropy: Float[Tensor, ""]
    """Mean entropy under the same aggregation; 0 if none was given."""
    token_loss: Float[Tensor, "episode token"]
    ratio: Float[Tensor, "episode token"]
    clipped: Bool[Tensor, "episode token"]
    """Tokens whose clipped surrogate is the larger loss, so that the clip stops their gradient (with `cispo`: whose
    ratio was cut).
    """
    sampler_weight: Float[Tensor, "episode token"]
    """π_old/π_sampler before the cap; 1 if no sampler log-probabilities were given."""
    trained: Bool[Tensor, "episode token"]

    @property
    def clip_fraction(self) -> float:
        """Share of trained tokens that were clipped, in this micro-batch."""
        return float(self.clipped[self.trained].float().mean()) if bool(self.trained.any()) else 0.0

    @property
    def mean_ratio(self) -> float:
        return float(self.ratio[self.trained].mean()) if bool(self.trained.any()) else 1.0


def policy_loss(
    logprobs: Float[Tensor, "..."],
    old_logprobs: Float[Tensor, "..."],
    advantage: Float[Tensor, "..."],
    clip_scale: Float[Tensor, "..."] | None,
    turn: Int[Tensor, "..."],
    mask: Bool[Tensor, "..."],
    *,
    ratio: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    aggregation: str = "token-mean",
    divisor: float | None = None,
    weight: Float[Tensor, "..."] | None = None,
    whole: Denominators | None = None,
) -> PolicyLoss:
    """The clipped surrogate alone; all tensors are [episode token]. `compute_loss` adds distance, entropy and
    importance weights.

    −min(ρA, clip(ρ, 1 − c·ε_low, 1 + c·ε_high)·A), for A < 0 at most −dual_clip·A.

    Args:
        logprobs: log π_θ, with gradient.
        old_logprobs: log π_old.
        advantage: each token has its turn's.
        clip_scale: c, each token has its turn's; `None` = 1.
        turn: turn that sampled the token, -1 for all others.
        mask: true on the policy's tokens.
        ratio: as `LossSpec.ratio`, and so on for the other fields of `LossSpec`.
        clip_low: ε_low.
        clip_high: ε_high.
        dual_clip: bound for A < 0.
        aggregation: one of `AGGREGATIONS`.
        divisor: constant of seq-mean-token-sum-norm.
        weight: credit weight of each token.
        whole: counts of the whole mini-batch if these rows are only a part of it, see `denominators`.

    Raises:
        ConfigError: as `LossSpec` and `LossInputs`.
    """
    spec = LossSpec(
        ratio=ratio,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        aggregation=aggregation,
        divisor=divisor,
    )
    scale = torch.ones_like(advantage) if clip_scale is None else clip_scale
    return compute_loss(spec, LossInputs(logprobs, old_logprobs, advantage, scale, turn, mask, weight), whole)


def compute_loss(spec: LossSpec, inputs: LossInputs, whole: Denominators | None = None) -> PolicyLoss:
    """The loss that `spec` describes, for one micro-batch.

    Args:
        spec: the algorithm's `loss`.
        inputs: rows of the micro-batch.
        whole: counts of the whole mini-batch (`denominators`, summed over micro-batches and ranks); `None` = these rows
            are all of it.

    Raises:
        ConfigError: if the spec needs reference or sampler log-probabilities or entropies that `inputs` lacks.
    """
    _check_complete(spec, inputs)
    trained = inputs.trained
    whole = denominators(inputs.mask, inputs.weight) if whole is None else whole
    token_loss, ratio, clipped = _surrogate(spec, inputs)
    mismatch = (
        torch.ones_like(ratio)
        if inputs.sampler_logprobs is None
        else sampler_weight(inputs.old_logprobs, inputs.sampler_logprobs, inputs.mask)
    )
    if spec.importance_cap is not None:
        token_loss = token_loss * mismatch.clamp(max=spec.importance_cap)

    def mean(values: Float[Tensor, "episode token"]) -> Float[Tensor, ""]:
        weighted = values if inputs.weight is None else values * inputs.weight
        return aggregate(weighted, trained, spec.aggregation, whole, spec.divisor or 1.0)

    surrogate = mean(token_loss)
    kl, entropy = surrogate.new_zeros(()), surrogate.new_zeros(())
    if inputs.reference_logprobs is not None and spec.kl != "none":
        kl = mean(
            kl_estimate(inputs.logprobs.where(trained, 0.0), inputs.reference_logprobs.where(trained, 0.0), spec.kl)
        )
    if inputs.entropy is not None:
        entropy = mean(inputs.entropy.where(trained, 0.0))
    loss = surrogate + spec.kl_coefficient * kl - spec.entropy_coefficient * entropy
    return PolicyLoss(
        loss,
        surrogate.detach(),
        kl.detach(),
        entropy.detach(),
        token_loss.detach(),
        ratio.detach(),
        clipped,
        mismatch,
        trained,
    )


def _surrogate(
    spec: LossSpec, inputs: LossInputs
) -> tuple[Float[Tensor, "episode token"], Float[Tensor, "episode token"], Bool[Tensor, "episode token"]]:
    """Loss, ratio and clipped per token; 0, 1 and False outside the mask."""
    mask = inputs.mask
    advantage, scale = inputs.advantage.where(mask, 0.0), inputs.clip_scale.where(mask, 1.0)
    turn = merge_equal_turns(inputs.turn, advantage, mask) if spec.merge_equal_turns else inputs.turn
    ratio = importance_ratio(inputs.logprobs, inputs.old_logprobs, turn, mask, spec.ratio)
    cut = ratio.clamp(1 - scale * spec.clip_low, 1 + scale * spec.clip_high)
    if spec.surrogate == "cispo":
        return -cut.detach() * advantage * inputs.logprobs.where(mask, 0.0), ratio, mask & (cut != ratio)
    plain, clipped = -ratio * advantage, -cut * advantage
    loss = torch.maximum(plain, clipped)
    if spec.dual_clip is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -spec.dual_clip * advantage), loss)
    return loss, ratio, mask & (clipped > plain)


def _check_complete(spec: LossSpec, inputs: LossInputs) -> None:
    needs = {
        "reference_logprobs": spec.kl != "none",
        "sampler_logprobs": spec.importance_cap is not None,
        "entropy": spec.entropy_coefficient != 0,
    }
    for name, needed in needs.items():
        if needed and getattr(inputs, name) is None:
            raise ConfigError(
                f"policy loss: {name}: got None, expected log-probabilities or entropies per token because LossSpec"
                f" asks for them: {spec}"
            )
