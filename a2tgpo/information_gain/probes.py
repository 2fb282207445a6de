"""Gold answers as tokens that can be put behind any cut of an episode.

The text of a probe is `scaffold prefix + gold answer + scaffold suffix`, tokenised once as a whole, so that the gold's
tokens are those the policy would write there. Scored are the tokens that cover the gold's characters, found by offsets;
a token that merges the gold's edge with its neighbour is among them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

from a2tgpo.errors import ConfigError

Aliases = Literal["first", "max", "mean"]
"""Which gold answers of a question count: the first (as published), the best, or all alike."""

Measure = Literal["logprob", "prob"]
"""What a value is: the mean log-probability of the gold answer's tokens (nats), or its exponential."""

_MEASURED: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "logprob": lambda logprobs: logprobs,
    "prob": np.exp,
}
_COMBINED: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "first": lambda values: values[:, 0],
    "max": lambda values: values.max(axis=1),
    "mean": lambda values: values.mean(axis=1),
}


@dataclass(frozen=True, slots=True)
class Scaffold:
    """Fixed text around the gold answer, in the environment's own protocol (`Protocol.scaffold`). It must never change
    within a run.
    """

    prefix: str
    """Closes the thought and opens the answer."""
    suffix: str
    """Closes the answer. Only its effect on the tokenisation of the gold's end matters; it is never read by the model.
    """


@dataclass(frozen=True, slots=True)
class ScoredText:
    """One alias: all its tokens up to the last scored one."""

    token_ids: tuple[int, ...]
    first: int
    """Index of the first scored token; the rest is scored too."""


@dataclass(frozen=True, slots=True)
class Probe:
    """All aliases of a question as one prefix tree: tokens that they share (the scaffold above all) are computed once
    per cut.
    """

    token_ids: NDArray[np.int64]
    """Per node. The last scored token of an alias is no node unless another alias goes on behind it: nothing needs to
    be predicted after it.
    """
    depth: NDArray[np.int64]
    """Per node: tokens between the cut and the node."""
    sees: Bool[Tensor, "node node"]
    """Is the second node the first one or one of its ancestors?"""
    source: NDArray[np.int64]
    """Per scored token: the node that predicts it, -1 for the last token before the cut."""
    target: NDArray[np.int64]
    """Per scored token: its id."""
    share: NDArray[np.float64]
    """[scored token, alias]: what the token counts in the alias's mean; 0 for other aliases' tokens."""

    @property
    def reach(self) -> int:
        """Positions that the probe needs behind a cut."""
        return int(self.depth.max(initial=-1)) + 1


def build_probe(
    tokenizer: Any, scaffold: Scaffold, answers: Sequence[str], aliases: Aliases, question_id: str
) -> Probe:
    """The probe of a question.

    Aliases that are blank or consist of special tokens cannot be scored and are left out, repeated ones count once;
    `first` is the first one that remains.

    Raises:
        ConfigError: if no alias remains, or the tokenizer cannot tell which characters a token covers.
    """
    return probe_tree(scored_texts(tokenizer, scaffold, answers, aliases, question_id))


def scored_texts(
    tokenizer: Any, scaffold: Scaffold, answers: Sequence[str], aliases: Aliases, question_id: str
) -> list[ScoredText]:
    """The tokens of a question's aliases, of the first only where no other counts; raises as `build_probe`."""
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"information gain: {type(tokenizer).__name__} gives no character offsets, expected a fast tokenizer; save"
            " the model with its tokenizer.json"
        )
    texts = [
        text for answer in dict.fromkeys(answers) if (text := _scored_text(tokenizer, scaffold, answer)) is not None
    ]
    if not texts:
        raise ConfigError(
            f"information gain: question {question_id!r} has gold answers {list(answers)!r}, expected at least one that"
            " is neither blank nor only special tokens; fix or drop the question"
        )
    return texts[:1] if aliases == "first" else texts


def _scored_text(tokenizer: Any, scaffold: Scaffold, answer: str) -> ScoredText | None:
    if not answer.strip():
        return None
    start, end = len(scaffold.prefix), len(scaffold.prefix) + len(answer)
    encoded = tokenizer(
        scaffold.prefix + answer + scaffold.suffix, add_special_tokens=False, return_offsets_mapping=True
    )
    covering = [
        index
        for index, (first, last) in enumerate(encoded["offset_mapping"])
        if first < end and last > start and last > first
    ]
    ids = encoded["input_ids"]
    if not covering or set(ids[covering[0] : covering[-1] + 1]) <= set(tokenizer.all_special_ids):
        return None
    return ScoredText(tuple(ids[: covering[-1] + 1]), covering[0])


def gold_values(gold_logprobs: NDArray[np.float64], aliases: Aliases, measure: Measure) -> NDArray[np.float64]:
    """[cut, alias] mean log-probabilities to [cut] values: first the measure of every alias, then their first, largest
    or mean value.
    """
    return _COMBINED[aliases](_MEASURED[measure](gold_logprobs))


def probe_tree(texts: Sequence[ScoredText]) -> Probe:
    """Merge the aliases' common beginnings. A node is named by the tokens that lead to it."""
    nodes: dict[tuple[int, ...], int] = {}
    source, target, alias = [], [], []
    for number, text in enumerate(texts):
        for length in range(1, len(text.token_ids)):
            nodes.setdefault(text.token_ids[:length], len(nodes))
        for index in range(text.first, len(text.token_ids)):
            source.append(nodes[text.token_ids[:index]] if index else -1)
            target.append(text.token_ids[index])
            alias.append(number)
    sees = torch.zeros((len(nodes), len(nodes)), dtype=torch.bool)
    for path, node in nodes.items():
        sees[node, [nodes[path[:length]] for length in range(1, len(path) + 1)]] = True
    member = np.equal.outer(np.array(alias, dtype=np.int64), np.arange(len(texts)))
    per_node = np.array([(path[-1], len(path) - 1) for path in nodes], dtype=np.int64).reshape(-1, 2).T
    per_target = np.array([source, target], dtype=np.int64)
    return Probe(per_node[0], per_node[1], sees, per_target[0], per_target[1], member / member.sum(axis=0))
