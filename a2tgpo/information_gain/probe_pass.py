"""One forward pass over episodes with their probes.

Row layout: for every cut the nodes of the probe, then the episode, then right padding. A probe token sees the episode
up to its cut and its own ancestors, at the positions it would have if it followed the cut directly; so its
log-probabilities are those of a separate pass over prefix + probe, while the prefix is computed once for all cuts and
aliases and for the old log-probabilities of the episode's own tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import ConfigError
from a2tgpo.information_gain.probes import Probe
from a2tgpo.policy import Policy
from a2tgpo.policy.attention import Attend, ProbeMask, causal, flex_attention, split_attention
from a2tgpo.policy.token_scores import Entropy, TokenScores

Attention = Literal["sdpa", "flex"]
"""How the mask of the probes is applied; the numbers are the same."""

_ATTENTION: Mapping[str, Callable[[ProbeMask], Attend]] = {"sdpa": split_attention, "flex": flex_attention}


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass gave, rows in the order of the batch."""

    scores: TokenScores
    """[episode token] in the layout of the batch."""
    gold_logprobs: tuple[NDArray[np.float64], ...]
    """Per row: [cut, alias], mean log-probability of the gold tokens in nats."""
    probe_tokens: int
    """Tokens that the probes added, padding among them not counted."""


@dataclass(frozen=True, slots=True)
class _Slots:
    """The probe nodes of all rows, as columns in front of the episodes; padded with nodes that see the first episode
    token only.
    """

    token_ids: NDArray[np.int64]
    position: NDArray[np.int64]
    cut: NDArray[np.int64]
    copy: NDArray[np.int64]
    """Which of the row's cuts the node belongs to; -1 for padding."""
    node: NDArray[np.int64]


def pass_with_probes(
    policy: Policy,
    batch: TokenBatch,
    cuts: Sequence[Sequence[int]],
    probes: Sequence[Probe],
    *,
    entropy: Entropy = "value",
    attention: Attention = "sdpa",
) -> PassResult:
    """Log-probabilities and entropies of the policy tokens, and the gold answers' mean log-probabilities at every cut.

    Args:
        batch: right-padded rows.
        cuts: per row, numbers of tokens (at least 1) after which the gold answers are scored; may be empty.
        probes: per row; rows of one question share one object.

    Raises:
        ConfigError: as `Policy.token_logprobs`.
    """
    width = batch.token_ids.shape[1]
    policy.check_length(width, "information gain")
    slots = _lay_out(cuts, probes)
    added = slots.token_ids.shape[1]
    token_ids, positions = batch.token_ids, None
    attend: Attend = causal
    if added:
        device = batch.token_ids.device
        token_ids = torch.cat([torch.from_numpy(slots.token_ids).to(device), batch.token_ids], dim=1)
        episode_positions = torch.arange(width, device=device).expand(len(cuts), -1)
        positions = torch.cat([torch.from_numpy(slots.position).to(device), episode_positions], dim=1)
        reach = tuple((slots.cut.max(axis=0) + added).tolist())
        attend = _ATTENTION[attention](ProbeMask(_visible(slots, probes, width).to(device), reach))
    hidden = policy.hidden_states(token_ids, positions, attend)

    rows, columns = batch.action_mask.nonzero(as_tuple=True)
    if bool((columns == 0).any()):
        raise ConfigError(
            f"information gain: row {int(rows[columns == 0][0])} begins with a policy token, expected at least one"
            " prompt token before it"
        )
    gold = _gold_places(cuts, probes, added)
    gold_rows, gold_columns, gold_targets = (torch.from_numpy(gold[index]).to(hidden.device) for index in range(3))
    states = hidden[torch.cat([rows, gold_rows]), torch.cat([added + columns - 1, gold_columns])]
    scored = policy.score(states, torch.cat([batch.token_ids[rows, columns], gold_targets]), entropy)
    count = len(rows)
    zeros = torch.zeros(batch.token_ids.shape, device=hidden.device)
    scores = TokenScores(
        zeros.index_put((rows, columns), scored.logprobs[:count]),
        zeros.index_put((rows, columns), scored.entropy[:count]),
    )
    means = _means(scored.logprobs[count:].detach().double().cpu().numpy(), cuts, probes)
    return PassResult(scores, means, int((slots.copy >= 0).sum()))


def _lay_out(cuts: Sequence[Sequence[int]], probes: Sequence[Probe]) -> _Slots:
    width = max((len(row) * len(probe.token_ids) for row, probe in zip(cuts, probes, strict=True)), default=0)
    slots = _Slots(*(np.full((len(cuts), width), fill, dtype=np.int64) for fill in (0, 0, 1, -1, 0)))
    for index, (row, probe) in enumerate(zip(cuts, probes, strict=True)):
        nodes, copies = len(probe.token_ids), len(row)
        at = np.array(row, dtype=np.int64)[:, None]
        for name, value in (
            ("token_ids", probe.token_ids),
            ("position", at + probe.depth),
            ("cut", at),
            ("copy", np.arange(copies)[:, None]),
            ("node", np.arange(nodes)),
        ):
            getattr(slots, name)[index, : copies * nodes].reshape(copies, nodes)[:] = value
    return slots


def _visible(slots: _Slots, probes: Sequence[Probe], width: int) -> Tensor:
    """[row, probe token, column]: the ancestors within the same copy, then the episode before the cut."""
    cut, copy, node = (torch.from_numpy(value) for value in (slots.cut, slots.copy, slots.node))
    prefix = torch.arange(width) < cut[:, :, None]
    unique = {id(probe): probe for probe in probes}
    number = {key: index for index, key in enumerate(unique)}
    size = max(len(probe.token_ids) for probe in unique.values())
    sees = torch.zeros((len(unique), size, size), dtype=torch.bool)
    for index, probe in enumerate(unique.values()):
        nodes = len(probe.token_ids)
        sees[index, :nodes, :nodes] = probe.sees
    tree = torch.tensor([number[id(probe)] for probe in probes])[:, None, None]
    own = sees[tree, node[:, :, None], node[:, None, :]] & (copy[:, :, None] == copy[:, None, :])
    return torch.cat([own, prefix], dim=2)


def _gold_places(
    cuts: Sequence[Sequence[int]], probes: Sequence[Probe], added: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(row, column that predicts it, token id) of every scored gold token; per row, per cut, per scored token."""
    columns, targets = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for row, probe in zip(cuts, probes, strict=True):
        node = len(probe.token_ids) * np.arange(len(row))[:, None] + probe.source
        before = added - 1 + np.array(row, dtype=np.int64)[:, None]
        columns.append(np.where(probe.source >= 0, node, before).reshape(-1))
        targets.append(np.tile(probe.target, len(row)))
    rows = np.repeat(
        np.arange(len(cuts)), [len(row) * len(probe.source) for row, probe in zip(cuts, probes, strict=True)]
    )
    return rows, np.concatenate(columns), np.concatenate(targets)


def _means(
    logprobs: NDArray[np.float64], cuts: Sequence[Sequence[int]], probes: Sequence[Probe]
) -> tuple[NDArray[np.float64], ...]:
    """Mean over each alias's scored tokens, per row as [cut, alias]."""
    result = []
    start = 0
    for row, probe in zip(cuts, probes, strict=True):
        count = len(row) * len(probe.target)
        tokens = logprobs[start : start + count].reshape(len(row), len(probe.target))
        result.append(tokens @ probe.share)
        start += count
    return tuple(result)
