"""Episodes as they are recorded: tokens, turns, masks, seeds, limits."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from a2tgpo.batch import collate
from a2tgpo.engines.base import Engine, Sample, Sampling, generate
from a2tgpo.episode import ActionKind, Episode, StopReason
from a2tgpo.training.rollout import Task
from tests.support.small_world import small_rollout
from tests.support.tiny_models import tiny_policy

TASKS = [Task(group, f"q{group}", 10 * group + place) for group in range(5) for place in range(4)]


def played(num_envs: int = 8, max_episode_tokens: int = 120, temperature: float = 1.0) -> list[Episode]:
    return small_rollout(tiny_policy(), num_envs, max_episode_tokens)(TASKS, temperature)


def test_order_groups_and_seeds_are_the_tasks() -> None:
    episodes = played()
    assert [(episode.group, episode.question_id, episode.seed) for episode in episodes] == [
        (t.group, t.question_id, t.seed) for t in TASKS
    ]


def test_tokens_are_the_concatenation_of_what_was_shown_and_sampled() -> None:
    policy = tiny_policy()
    for episode in small_rollout(policy)(TASKS):
        assert policy.tokenizer.decode(list(episode.turns[0].context_ids)).startswith("<unk> w")  # Question: …
        assert episode.num_tokens == len(episode.token_ids) == len(episode.turn_index)
        for index, (turn, start) in enumerate(zip(episode.turns, episode.action_starts, strict=True)):
            assert episode.token_ids[start : start + len(turn.action_ids)] == turn.action_ids
            assert set(episode.turn_index[start : start + len(turn.action_ids)]) == {index}
        assert sum(episode.action_mask) == sum(len(turn.action_ids) for turn in episode.turns)


def test_every_kind_of_turn_and_end_occurs_and_is_consistent() -> None:
    episodes = [episode for seed in range(6) for episode in small_rollout(tiny_policy(seed=seed))(TASKS)]
    kinds = {turn.action for episode in episodes for turn in episode.turns}
    stops = {episode.stop for episode in episodes}
    assert kinds == {ActionKind.INVALID, ActionKind.SEARCH, ActionKind.ANSWER}
    assert stops >= {StopReason.MAX_TURNS, StopReason.ANSWERED}
    for episode in episodes:
        assert (episode.turns[-1].action is ActionKind.ANSWER) == (episode.stop is StopReason.ANSWERED)
        assert episode.outcome == episode.em
        assert not (episode.stop is StopReason.ANSWERED and episode.closing_ids)


def test_result_does_not_depend_on_number_of_environments() -> None:
    """Companions may change the last bits of a log-probability (other matrix shapes), never what happened."""
    runs = [played(num_envs=count) for count in (8, 20, 3)]
    for first, *others in zip(*runs, strict=True):
        for other in others:
            assert (other.token_ids, other.turn_index, other.stop, other.outcome) == (
                first.token_ids,
                first.turn_index,
                first.stop,
                first.outcome,
            )
            for one, two in zip(first.turns, other.turns, strict=True):
                assert one.action_logprobs == pytest.approx(two.action_logprobs, abs=1e-5)


@dataclasses.dataclass
class Streaming:
    """Hands out what is in flight one row at a time, in a random order."""

    engine: Engine
    rng: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(0))
    flying: dict[int, tuple[list[int], Sampling, int]] = dataclasses.field(default_factory=dict)

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        assert key not in self.flying
        self.flying[key] = list(prompt), sampling, seed

    def collect(self) -> list[tuple[int, Sample]]:
        key = int(self.rng.choice(list(self.flying)))
        prompt, sampling, seed = self.flying.pop(key)
        return [(key, generate(self.engine, [prompt], sampling, [seed])[0])]

    def load_weights(self, policy: Any, version: int) -> None: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...


def test_episodes_that_need_not_wait_for_each_other_are_the_same() -> None:
    lockstep, streaming = small_rollout(tiny_policy()), small_rollout(tiny_policy())
    streaming.engine = Streaming(streaming.engine)
    for one, other in zip(lockstep(TASKS), streaming(TASKS), strict=True):
        assert (one.token_ids, one.turn_index, one.stop, one.outcome, one.answer) == (
            other.token_ids,
            other.turn_index,
            other.stop,
            other.outcome,
            other.answer,
        )
        for mine, theirs in zip(one.turns, other.turns, strict=True):
            assert (mine.query, mine.passage_ids) == (theirs.query, theirs.passage_ids)
            assert mine.action_logprobs == pytest.approx(theirs.action_logprobs, abs=1e-5)
    assert not streaming.engine.flying


def test_greedy_is_deterministic_and_ignores_seeds() -> None:
    first = small_rollout(tiny_policy())(TASKS, 0.0)
    other_seeds = small_rollout(tiny_policy())([dataclasses.replace(task, seed=task.seed + 999) for task in TASKS], 0.0)
    assert [episode.token_ids for episode in first] == [episode.token_ids for episode in other_seeds]


def test_token_limit_truncates_with_its_reason() -> None:
    episodes = played(max_episode_tokens=16)
    assert all(episode.num_tokens <= 16 for episode in episodes)
    assert any(episode.stop is StopReason.MAX_TOKENS for episode in episodes)
    assert all(episode.outcome == 0 for episode in episodes if episode.stop is StopReason.MAX_TOKENS)


@pytest.mark.parametrize(("response", "limit"), [(0, 30), (12, 3 + 12)])
def test_without_a_cap_per_turn_only_the_episode_is_limited(response: int, limit: int) -> None:
    """Prompts have 3 tokens. A turn that is cut is cut at the episode's last token."""
    rollout = small_rollout(tiny_policy(), max_episode_tokens=30)
    rollout.max_action_tokens, rollout.max_response_tokens = 0, response
    episodes = rollout(TASKS)
    assert max(episode.num_tokens for episode in episodes) == limit
    assert max(len(turn.action_ids) for episode in episodes for turn in episode.turns) > 6
    cut = [episode for episode in episodes if not episode.turns[-1].complete]
    assert cut
    assert all(episode.num_tokens - len(episode.closing_ids) == limit for episode in cut)
    assert all(turn.complete for episode in episodes for turn in episode.turns[:-1])


def test_prompt_longer_than_an_episode_names_question_and_limit() -> None:
    with pytest.raises(ValueError, match=r"max_episode_tokens: got 5, .*'q0'.*3 tokens"):
        played(max_episode_tokens=5)


def test_collate_keeps_tokens_masks_and_sampler_logprobs() -> None:
    episodes = played()
    batch = collate(episodes, pad_token_id=0)
    for row, episode in enumerate(episodes):
        length = episode.num_tokens
        assert batch.token_ids[row, :length].tolist() == list(episode.token_ids)
        assert batch.turn[row].tolist() == list(episode.turn_index) + [-1] * (batch.turn.shape[1] - length)
        assert batch.sampler_logprobs[row][batch.action_mask[row]].tolist() == pytest.approx(
            [lp for turn in episode.turns for lp in turn.action_logprobs]
        )


def test_sampler_logprobs_are_the_policys() -> None:
    policy = tiny_policy()
    batch = collate(small_rollout(policy)(TASKS), policy.pad_token_id)
    difference = (policy.token_logprobs(batch).logprobs.detach() - batch.sampler_logprobs).abs().max()
    assert float(difference) < 1e-4
