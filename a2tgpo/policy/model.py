"""The model being trained: loading, saving, and the log-probabilities of what it sampled."""

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import ConfigError
from a2tgpo.policy.attention import Attend, attention_of, causal
from a2tgpo.policy.reading import read_model
from a2tgpo.policy.token_scores import Entropy, TokenScores, score_tokens

_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Config keys of models that do more to their logits than the output matrix."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and its tokenizer.

    Raises:
        ConfigError: if the model post-processes its logits, has no plain output matrix, or its tokenizer knows more
            tokens than it has embeddings.
    """

    model: Any
    """A transformers causal language model."""
    tokenizer: Any
    """Its tokenizer."""
    passes_in: torch.dtype | None = None
    """What forward and backward passes are computed in, where that is not the type of the weights."""

    def __post_init__(self) -> None:
        changes = [key for key in _LOGIT_CHANGES if getattr(self.model.config, key, None) not in (None, 1, 1.0)]
        if changes:
            raise ConfigError(
                f"policy: the config of {type(self.model).__name__} sets {changes}, expected plain logits as those of"
                " Llama- and Qwen-type models; use such a model"
            )
        head = self.model.get_output_embeddings()
        if not isinstance(head, nn.Linear):
            raise ConfigError(
                f"policy: the output layer of {type(self.model).__name__} is {type(head).__name__}, expected nn.Linear;"
                " use a model with one"
            )
        known, rows = len(self.tokenizer), self.model.get_input_embeddings().weight.shape[0]
        if known > rows:
            raise ConfigError(
                f"policy: the tokenizer has {known} tokens, the model {rows} embeddings, expected at least one each; do"
                " they belong together?"
            )

    @staticmethod
    def load(path: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> "Policy":
        """Read a model folder (transformers layout, safetensors) from disk. Nothing is downloaded, and no code in the
        folder is run.

        Weights are float32 whatever `dtype` the passes are computed in: an optimiser step of 1e-6 would be rounded away
        in bfloat16.

        Raises:
            ConfigError: as `read_model`, if the device is not there, or model and tokenizer do not fit together.
        """
        device = checked_device(device)
        model, tokenizer = read_model(Path(path))
        return Policy(model.to(device), tokenizer, dtype)

    def save(self, path: Path | str) -> None:
        """Write model and tokenizer so that `load` (or transformers itself) reads them again."""
        self.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)

    @property
    def device(self) -> torch.device:
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.device

    @property
    def dtype(self) -> torch.dtype:
        """What passes are computed in."""
        weights: torch.dtype = self.model.dtype
        return self.passes_in or weights

    def precision(self) -> AbstractContextManager[Any]:
        """Within it, the model's layers compute in `dtype`."""
        return nullcontext() if self.dtype == self.model.dtype else torch.autocast(self.device.type, self.dtype)

    @property
    def pad_token_id(self) -> int:
        """The tokenizer's padding token, else its end token, else 0. Padding is never looked at, so any id would do."""
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0

    @property
    def end_token_ids(self) -> frozenset[int]:
        """What ends a turn: the tokenizer's end token, and what the model's generation config names besides, as chat
        models do, whose messages end with another token than texts.
        """
        named = getattr(self.model.generation_config, "eos_token_id", None)
        more = [] if named is None else [named] if isinstance(named, int) else named
        return frozenset({self.tokenizer.eos_token_id, *more} - {None})

    @property
    def max_tokens(self) -> int:
        """Longest row that the model's positions allow; without a limit in its config, more than any episode has."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or 2**31)

    def weights_hash(self) -> str:
        """SHA-256 over names, types, shapes and bytes of all weights: equal hashes mean equal policies."""
        digest = hashlib.sha256()
        for name, weight in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def token_logprobs(self, batch: TokenBatch, *, entropy: Entropy = "value") -> TokenScores:
        """Log-probability of every policy token given everything before it, in the layout of `batch` (padded left or
        right).

        Temperature 1, log-softmax in float32. Gradients flow unless the caller switched them off. Only the positions
        that predict a policy token go through the output matrix, in blocks of the vocabulary; more than one block is
        computed again in the backward pass instead of being kept.

        Args:
            batch: a micro-batch; columns that are padding in every row cost nothing.
            entropy: `"skip"` leaves zeros, `"value"` computes it without gradient, `"gradient"` with.

        Raises:
            ConfigError: if a row is longer than the model's context, or begins with a policy token (nothing predicts
                it).
        """
        lengths = batch.attention_mask.sum(dim=1)
        start = batch.attention_mask.int().argmax(dim=1)  # 0 unless padded on the left
        width = int(lengths.max())
        self.check_length(width, "token_logprobs")
        rows, columns = batch.action_mask.nonzero(as_tuple=True)
        before = columns - start[rows] - 1
        if bool((before < 0).any()):
            raise ConfigError(
                f"token_logprobs: row {int(rows[before < 0][0])} begins with a policy token, expected at least one"
                " prompt token before it"
            )
        token_ids = batch.token_ids[:, :width]
        if bool(start.any()):
            shifted = start[:, None] + torch.arange(width, device=start.device)
            token_ids = batch.token_ids.gather(1, shifted.clamp(max=batch.token_ids.shape[1] - 1))
        hidden = self.hidden_states(token_ids)[rows, before]
        scores = self.score(hidden, batch.token_ids[rows, columns], entropy)
        zeros = torch.zeros(batch.token_ids.shape, device=hidden.device)
        return TokenScores(
            zeros.index_put((rows, columns), scores.logprobs), zeros.index_put((rows, columns), scores.entropy)
        )

    def hidden_states(
        self,
        token_ids: Int[Tensor, "episode token"],
        position_ids: Int[Tensor, "episode token"] | None = None,
        attend: Attend = causal,
    ) -> Float[Tensor, "episode token width"]:
        """Last hidden states of right-padded rows, under plain causal attention unless told otherwise."""
        with attention_of(self.model), self.precision():
            output = self.model.get_decoder()(
                input_ids=token_ids, position_ids=position_ids, use_cache=False, attend=attend
            )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def score(
        self, hidden: Float[Tensor, "token width"], target: Int[Tensor, " token"], entropy: Entropy
    ) -> TokenScores:
        """Log-probability of each target token under the hidden state that predicts it, and the entropy of that
        prediction; both [token].
        """
        with self.precision():
            return score_tokens(self.model.get_output_embeddings(), hidden, target, entropy)

    def check_length(self, tokens: int, where: str) -> None:
        """Raise ValueError if a row of so many tokens does not fit into the model's context."""
        if tokens > self.max_tokens:
            raise ConfigError(
                f"{where}: got {tokens} tokens, expected at most the model's context of {self.max_tokens}; lower the"
                " recipe's token limits or use another model"
            )


def checked_device(name: torch.device | str) -> torch.device:
    """The device of that name.

    Raises:
        ConfigError: if there is none on this machine.
    """
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"no use for a device of the type {device.type}")
    except RuntimeError as error:
        raise ConfigError(
            f"device: got {name!r}, expected 'cpu', 'cuda' or one of its devices like 'cuda:0'"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(
            f"device: got {str(device)!r}, but this machine shows torch {count} CUDA devices; use 'cpu', or a torch"
            " built for CUDA"
        )
    return device
