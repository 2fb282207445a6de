"""How much each search told the policy about the gold answer.

v_k is the policy's mean log-probability of the gold answer's tokens, teacher-forced after a fixed scaffold, given
everything that turn k could see: v_0 given the question alone, v_{k+1} given turn k and its observation too. The
information gain of search turn k is v_{k+1} - v_k (arXiv 2510.14967, counted from 0), and its probability gain the same
difference of exp(v), for algorithms that are defined by it; logs and curves are in nats. Both are measured under the
policy snapshot that also gives the old log-probabilities, in the same forward pass.

What has no gain (`None`, never 0): the answer turn; an invalid turn; a search whose retrieval failed, or that was
refused since the search budget was spent; a last search whose observation did not fit into the episode; a search next
to a cut behind which the probe does not fit into the model's context. Every other search has one, also in a truncated
episode. A search after an invalid turn is compared with what it could see itself, so neither gets the other's gain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from a2tgpo.batch import TokenBatch, collate, no_tokens
from a2tgpo.config import GainSettings
from a2tgpo.envs import Protocol
from a2tgpo.episode import Episode
from a2tgpo.errors import NumericalError
from a2tgpo.information_gain.cuts import CutRule, Cuts, observation_cuts, released_cuts
from a2tgpo.information_gain.probe_pass import Attention, PassResult, pass_with_probes
from a2tgpo.information_gain.probes import Aliases, Measure, Probe, Scaffold, build_probe, gold_values, probe_tree
from a2tgpo.policy import Policy, micro_batches
from a2tgpo.policy.token_scores import Entropy


@dataclass(frozen=True, slots=True)
class Scoring:
    """How episodes are scored: the same for every batch of a run."""

    scaffold: Scaffold | None = None
    """The protocol's text around an answer; `None` measures no gain, and then none costs anything."""
    aliases: Aliases = "first"
    """Which gold answers count. Log-probabilities and probabilities are combined over aliases each on their own."""
    cut_rule: CutRule = "observation"
    """`"released"` takes values where the published code does (`released_cuts`)."""
    search_tag: str = "<search>"
    """The text that opens a search in the protocol, which the released cut rule needs."""
    only_mixed_groups: bool = False
    """Measure the gain only in groups whose outcomes differ. The others' gains stay missing."""
    attention: Attention = "sdpa"
    micro_batch_tokens: int = 16384
    """Largest number of token places of one forward pass, padding and probes included; a single longer row goes
    alone.
    """

    @staticmethod
    def of(protocol: Protocol, settings: GainSettings, micro_batch_tokens: int) -> "Scoring":
        """The scoring that a recipe asks for, in the words of its protocol."""
        return Scoring(
            Scaffold(*protocol.scaffold),
            aliases=settings.aliases,
            cut_rule=settings.cut_rule,
            search_tag=protocol.search_tag,
            only_mixed_groups=settings.only_mixed_groups,
            attention=settings.attention,
            micro_batch_tokens=micro_batch_tokens,
        )

    def without_gain(self) -> "Scoring":
        """The same with log-probabilities and entropies only."""
        return replace(self, scaffold=None)


@dataclass(frozen=True, slots=True)
class Scores:
    """What one pass over a batch of episodes gave. Tensors have a row for every episode that did not fail, in their
    order.
    """

    episodes: tuple[Episode, ...]
    """All episodes, with `information_gain` filled in; failed ones as they were."""
    tokens: TokenBatch
    """The played episodes, collated."""
    logprobs: Float[Tensor, "episode token"]
    """Of the sampled tokens, under the policy that scored them, in nats; 0 elsewhere."""
    entropy: Float[Tensor, "episode token"]
    """Of the distributions that the sampled tokens were drawn from, in nats; 0 elsewhere."""
    values: Float[Tensor, "episode cut"]
    """Mean log-probability of the gold answer in nats, before turn k (column k) and after the last turn; NaN where
    there is none.
    """
    probabilities: Float[Tensor, "episode cut"]
    """Its probability at the same places."""
    probe_tokens: int
    """Tokens that the probes added to the pass."""

    @property
    def played(self) -> list[Episode]:
        """The episodes that did not fail: one per row."""
        return [episode for episode in self.episodes if not episode.failed]


def score_episodes(
    policy: Policy,
    episodes: Sequence[Episode],
    scoring: Scoring = Scoring(),
    *,
    entropy: Entropy = "value",
) -> Scores:
    """Log-probabilities, entropies and information gain of a batch, in one forward pass per micro-batch and without
    gradient. The one way to score episodes: for training, evaluation, calibration and other trainers.

    Args:
        policy: for training, the snapshot that sampled the episodes.
        episodes: in any order. Failed ones pass through unscored.
        scoring: what is scored, and how.

    Raises:
        ConfigError: for an episode that does not fit into the model's context or begins with a sampled token, and for a
            question without a gold answer that can be scored (see `build_probe`).
        NumericalError: if a log-probability, an entropy or a value is not finite; names the episode and its question.
    """
    jobs = _jobs(policy, [episode for episode in episodes if not episode.failed], scoring)
    played = [job.episode for job in jobs]
    tokens = collate(played, policy.pad_token_id, policy.device) if played else no_tokens(policy.device)
    logprobs, entropies = (torch.zeros(tokens.token_ids.shape, device=policy.device) for _ in range(2))
    shape = len(jobs), max((episode.num_turns for episode in played), default=-1) + 1
    measured: dict[Measure, NDArray[np.float64]] = {"logprob": np.full(shape, np.nan), "prob": np.full(shape, np.nan)}
    probe_tokens = 0
    # where passes round, a group's gains must not differ by the micro-batch that they were measured in
    groups = None if policy.dtype == torch.float32 else [episode.group for episode in played]
    for rows in micro_batches([job.num_tokens for job in jobs], scoring.micro_batch_tokens, groups):
        chosen = [jobs[row] for row in rows]
        batch = tokens.take(rows)
        with torch.no_grad():
            result = pass_with_probes(
                policy,
                batch,
                [job.places for job in chosen],
                [job.probe for job in chosen],
                entropy=entropy,
                attention=scoring.attention,
            )
        _check_finite(result, chosen)
        logprobs[rows, : batch.token_ids.shape[1]] = result.scores.logprobs
        entropies[rows, : batch.token_ids.shape[1]] = result.scores.entropy
        probe_tokens += result.probe_tokens
        for row, job, gold in zip(rows, chosen, result.gold_logprobs, strict=True):
            if job.places:
                for how, values in measured.items():
                    values[row, list(job.cuts.positions)] = gold_values(gold, scoring.aliases, how)
    scored = iter(
        _with_gains(job, nats, probabilities, keep_zeros=scoring.cut_rule == "observation")
        for job, nats, probabilities in zip(jobs, *(values.tolist() for values in measured.values()), strict=True)
    )
    filled = tuple(episode if episode.failed else next(scored) for episode in episodes)
    both = [torch.from_numpy(values) for values in measured.values()]
    return Scores(filled, tokens, logprobs, entropies, both[0], both[1], probe_tokens)


@dataclass(frozen=True, slots=True)
class _Job:
    """An episode with what is to be scored in it."""

    episode: Episode
    cuts: Cuts
    probe: Probe

    @property
    def places(self) -> list[int]:
        return list(self.cuts.positions.values())

    @property
    def num_tokens(self) -> int:
        return self.episode.num_tokens + len(self.cuts.positions) * len(self.probe.token_ids)


def _jobs(policy: Policy, episodes: Sequence[Episode], scoring: Scoring) -> list[_Job]:
    probes: dict[tuple[str, tuple[str, ...]], Probe] = {}
    outcomes: dict[int, set[float]] = {}
    max_tokens = policy.max_tokens
    for episode in episodes:
        policy.check_length(episode.num_tokens, f"an episode of question {episode.question_id!r}")
        outcomes.setdefault(episode.group, set()).add(episode.outcome)
    jobs = []
    for episode in episodes:
        if scoring.scaffold is None or (scoring.only_mixed_groups and len(outcomes[episode.group]) == 1):
            jobs.append(_Job(episode, Cuts({}, (None,) * episode.num_turns), _NO_PROBE))
            continue
        key = (episode.question_id, episode.gold_answers)
        if key not in probes:
            probes[key] = build_probe(policy.tokenizer, scoring.scaffold, episode.gold_answers, scoring.aliases, key[0])
        cuts = (
            observation_cuts(episode)
            if scoring.cut_rule == "observation"
            else released_cuts(episode, policy.tokenizer, scoring.search_tag)
        )
        room = max_tokens - probes[key].reach
        fitting = {cut: place for cut, place in cuts.positions.items() if place <= room}
        jobs.append(_Job(episode, Cuts(fitting, cuts.gains), probes[key]))
    return jobs


_NO_PROBE = probe_tree([])


def _with_gains(job: _Job, values: Sequence[float], probabilities: Sequence[float], keep_zeros: bool) -> Episode:
    turns = []
    for turn, pair in zip(job.episode.turns, job.cuts.gains, strict=True):
        gain = _gain(values, pair, keep_zeros)
        change = None if gain is None or pair is None else probabilities[pair[1]] - probabilities[pair[0]]
        same = (turn.information_gain, turn.probability_gain) == (gain, change)
        turns.append(turn if same else replace(turn, information_gain=gain, probability_gain=change))
    return replace(job.episode, turns=tuple(turns))


def _gain(values: Sequence[float], pair: tuple[int, int] | None, keep_zeros: bool) -> float | None:
    """NaN marks a cut without value; a measured NaN never gets here."""
    if pair is None:
        return None
    gain = values[pair[1]] - values[pair[0]]
    return None if math.isnan(gain) or (gain == 0 and not keep_zeros) else gain


def _check_finite(result: PassResult, jobs: Sequence[_Job]) -> None:
    finite = (result.scores.logprobs.isfinite() & result.scores.entropy.isfinite()).all(dim=1).tolist()
    for job, tokens_fine, gold in zip(jobs, finite, result.gold_logprobs, strict=True):
        if not tokens_fine or not np.isfinite(gold).all():
            what = "gold answer" if tokens_fine else "sampled tokens"
            raise NumericalError(
                f"information gain: the policy's log-probability of the {what} is not finite in an episode of question"
                f" {job.episode.question_id!r} (seed {job.episode.seed}), expected finite numbers; the weights may have"
                " diverged, go back to a checkpoint and lower the learning rate"
            )
