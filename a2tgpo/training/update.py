"""How one batch of episodes changes the policy.

Mini-batches hold whole groups; each is one optimiser step, and its gradient does not depend on how it is cut into
micro-batches: every micro-batch's loss is a sum over its rows divided by the counts of the whole mini-batch.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from a2tgpo import config
from a2tgpo.algorithms import Denominators, LossInputs, LossSpec, PolicyLoss, compute_loss, denominators
from a2tgpo.batch import spread
from a2tgpo.errors import NonFiniteError, NumericalError
from a2tgpo.policy import Policy, micro_batches
from a2tgpo.policy.attention import attention_of
from a2tgpo.training.score import TrainingBatch

RATIO_TOLERANCE = {torch.float32: ("largest", 1e-3), torch.bfloat16: ("mean", 0.1)}
"""Size of log π_θ − log π_old (nats) allowed before the first optimiser step of a batch, where both are the same
policy; only rounding may differ.
"""


log = logging.getLogger(__name__)


@dataclass
class _Sums:
    """Diagnostics, as sums over trained tokens; read at the end of the step only, so that no micro-batch waits for
    them.
    """

    tokens: Tensor | int = 0
    clipped: Tensor | int = 0
    ratio: Tensor | int = 0
    log_ratio_square: Tensor | int = 0
    loss: Tensor | int = 0
    surrogate: Tensor | int = 0
    kl: Tensor | int = 0
    entropy: Tensor | int = 0
    credited: Tensor | int = 0
    credited_logprob: Tensor | int = 0
    grad_norms: list[float] = field(default_factory=list)

    def __iadd__(self, other: "_Sums") -> "_Sums":
        for entry in fields(self):
            setattr(self, entry.name, getattr(self, entry.name) + getattr(other, entry.name))
        return self

    def add(self, loss: PolicyLoss, inputs: LossInputs) -> None:
        trained, logprobs = loss.trained, inputs.logprobs.detach()
        good = trained & (inputs.advantage > 0)
        self.tokens += trained.sum()
        self.clipped += (loss.clipped & trained).sum()
        self.ratio += loss.ratio.where(trained, 0.0).sum()
        self.log_ratio_square += (logprobs - inputs.old_logprobs).where(trained, 0.0).square().sum()
        self.loss += loss.loss.detach()
        self.surrogate += loss.surrogate
        self.kl += loss.kl
        self.entropy += loss.entropy
        self.credited += good.sum()
        self.credited_logprob += logprobs.where(good, 0.0).sum()

    def metrics(self) -> dict[str, float]:
        count, credited, steps = max(int(self.tokens), 1), int(self.credited), max(len(self.grad_norms), 1)
        return {
            "loss": float(self.loss) / steps,
            "loss_surrogate": float(self.surrogate) / steps,
            "loss_kl": float(self.kl) / steps,
            "loss_entropy": float(self.entropy) / steps,
            "clip_fraction": float(self.clipped) / count,
            "ratio": float(self.ratio) / count,
            "kl_to_old": float(self.log_ratio_square) / (2 * count),
            "credited_logprob": float(self.credited_logprob) / credited if credited else math.nan,
            "grad_norm": sum(self.grad_norms) / steps,
            "trained_tokens": float(self.tokens),
        }


class Updater:
    """Owns the optimiser."""

    def __init__(
        self, policy: Policy, settings: config.UpdateSettings, loss: LossSpec, total_steps: int, seed: int
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.loss = loss
        self.total_steps = total_steps
        self.seed = seed
        self.micro_batch_tokens = settings.micro_batch_tokens
        """Token budget of a micro-batch; halved when the device runs out of memory, which changes nothing but the
        speed.
        """
        self.skipped = 0
        """Optimiser steps left out because of a non-finite loss or gradient."""
        parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        if settings.gradient_checkpointing:
            renamed = getattr(policy.model, "activation_checkpointing_enable", None)  # in transformers 5.2x
            enable = renamed or policy.model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        self.optimizer = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )

    @property
    def parameter_names(self) -> dict[Tensor, str]:
        return {parameter: name for name, parameter in self.policy.model.named_parameters()}

    def learning_rate(self, step: int) -> float:
        """Learning rate of training step `step` (counted from 0): linear warm-up, then constant or linear to 0."""
        scale = min(1.0, (step + 1) / self.settings.warmup_steps) if self.settings.warmup_steps else 1.0
        if self.settings.schedule == "linear":
            scale *= 1 - step / self.total_steps
        return self.settings.learning_rate * scale

    def __call__(self, batch: TrainingBatch, step: int) -> dict[str, float]:
        """Train on a batch; returns its diagnostics.

        Raises:
            NumericalError: on a non-finite loss or gradient, or if the first mini-batch's ratios are not 1.
        """
        batch = batch.to(self.policy.device)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        sums = _Sums()
        rng = np.random.default_rng((self.seed, step))
        self.policy.model.train()
        for epoch in range(self.settings.epochs):
            for number, rows in enumerate(self._mini_batches(batch, rng)):
                sums += self._guarded_step(batch, rows, fresh=epoch == 0 and number == 0)
        self.policy.model.eval()
        self.optimizer.zero_grad(set_to_none=True)  # their memory is the rollout's
        return sums.metrics() | {"learning_rate": self.learning_rate(step), "skipped_updates": float(self.skipped)}

    def _mini_batches(self, batch: TrainingBatch, rng: np.random.Generator) -> Iterator[Int[Tensor, " row"]]:
        """Rows of each mini-batch: whole groups in a seeded order."""
        groups = torch.from_numpy(rng.permutation(int(batch.group.max()) + 1)).to(batch.group.device)
        for chosen in groups.tensor_split(min(self.settings.mini_batches, len(groups))):
            yield torch.isin(batch.group, chosen).nonzero().squeeze(1)

    def _guarded_step(self, batch: TrainingBatch, rows: Int[Tensor, " row"], *, fresh: bool) -> _Sums:
        """One optimiser step. Out of memory: once more with half the micro-batch. Non-finite: left out and counted, as
        long as the recipe allows it.
        """
        try:
            return self._optimizer_step(batch, rows, fresh=fresh)
        except torch.OutOfMemoryError:
            pass  # tried again below, when the failed pass and all that it held are gone
        except NonFiniteError as error:
            self.skipped += 1
            if self.skipped > self.settings.max_skipped_updates:
                raise
            log.warning("%s (skipped, %d of at most %d)", error, self.skipped, self.settings.max_skipped_updates)
            return _Sums()
        self.micro_batch_tokens = max(1, self.micro_batch_tokens // 2)
        log.warning(
            "update: out of memory; once more with micro-batches of %d tokens, set update.micro_batch_tokens to that",
            self.micro_batch_tokens,
        )
        torch.cuda.empty_cache()
        return self._optimizer_step(batch, rows, fresh=fresh)

    def _optimizer_step(self, batch: TrainingBatch, rows: Int[Tensor, " row"], *, fresh: bool) -> _Sums:
        sums = _Sums()
        weight = spread(batch.credit.weight[rows], batch.tokens.turn[rows])
        whole = denominators(batch.tokens.action_mask[rows], weight)
        self.optimizer.zero_grad(set_to_none=True)
        for micro in self._micro_batches(batch, rows):
            self._backward(batch, micro, whole, sums, fresh=fresh)
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.settings.max_grad_norm))
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"update: gradient norm is {norm}, expected a finite number; lower update.learning_rate, or look at the"
                " step's episodes"
            )
        self.optimizer.step()
        sums.grad_norms.append(norm)
        return sums

    def _micro_batches(self, batch: TrainingBatch, rows: Int[Tensor, " row"]) -> Iterator[Int[Tensor, " row"]]:
        """Rows of similar length together, as many as the token budget holds.

        Rows whose credit is 0 on every turn pull no gradient through the surrogate, so they are passed over; they still
        count in the denominators.
        """
        if self.loss.entropy_coefficient == 0 and self.loss.kl_coefficient == 0:
            rows = rows[(batch.credit.advantage[rows] != 0).any(dim=1)]
        lengths = batch.tokens.attention_mask[rows].sum(dim=1).tolist()
        for chosen in micro_batches(lengths, self.micro_batch_tokens):
            yield rows[chosen]

    def _backward(
        self, batch: TrainingBatch, rows: Int[Tensor, " row"], whole: Denominators, sums: _Sums, *, fresh: bool
    ) -> None:
        tokens = batch.tokens.take(rows)
        width = tokens.token_ids.shape[1]
        scores = self.policy.token_logprobs(tokens, entropy="gradient" if self.loss.entropy_coefficient else "skip")
        inputs = LossInputs(
            logprobs=scores.logprobs,
            old_logprobs=batch.old_logprobs[rows, :width],
            advantage=spread(batch.credit.advantage[rows], tokens.turn),
            clip_scale=spread(batch.credit.clip_scale[rows], tokens.turn),
            turn=tokens.turn,
            mask=tokens.action_mask,
            weight=spread(batch.credit.weight[rows], tokens.turn),
            sampler_logprobs=tokens.sampler_logprobs,
            reference_logprobs=None if batch.reference_logprobs is None else batch.reference_logprobs[rows, :width],
            entropy=scores.entropy if self.loss.entropy_coefficient else None,
        )
        if fresh:
            self._check_ratio(inputs)
        loss = compute_loss(self.loss, inputs, whole)
        if not bool(loss.loss.isfinite()):
            raise NonFiniteError(
                f"update: loss is {float(loss.loss.detach())}, expected a finite number; look at the step's episodes"
            )
        with attention_of(self.policy.model):  # layers that are computed once more attend as they did before
            loss.loss.backward()  # type: ignore[no-untyped-call]
        sums.add(loss, inputs)

    def _check_ratio(self, inputs: LossInputs) -> None:
        """Before the first optimiser step the policy is the one that the batch was scored with."""
        kind, tolerance = RATIO_TOLERANCE[self.policy.dtype]
        differences = (inputs.logprobs.detach() - inputs.old_logprobs)[inputs.mask].abs()
        difference = float(differences.max() if kind == "largest" else differences.mean())
        if not difference <= tolerance:
            raise NumericalError(
                f"update: before the first optimiser step, log π_θ and log π_old differ by {difference:.3g} ({kind}),"
                f" expected at most {tolerance}; the batch was scored with other weights, in another mode (dropout?) or"
                " with other tokens"
            )
