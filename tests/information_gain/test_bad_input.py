"""What is not computed, what is missing, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from a2tgpo.episode import StopReason
from a2tgpo.errors import NumericalError
from a2tgpo.information_gain import Scoring, score_episodes
from a2tgpo.policy import Policy
from tests.support.byte_models import byte_policy
from tests.support.plain_gains import ANSWER, GLUED, SCAFFOLD, episode, turn


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes of the forward passes."""
    seen: list[tuple[int, int]] = []
    original = Policy.hidden_states

    def counted(self: Policy, token_ids: torch.Tensor, *arguments: Any) -> Any:
        seen.append((token_ids.shape[0], token_ids.shape[1]))
        return original(self, token_ids, *arguments)

    monkeypatch.setattr(Policy, "hidden_states", counted)
    return seen


def test_one_forward_gives_everything(passes: list[tuple[int, int]]) -> None:
    batch = [episode(turn([1, 2], [3]), turn([4] * n, [5], ANSWER), golds=["Paris", "東京"]) for n in (1, 2, 5)]
    result = score_episodes(byte_policy(), batch, Scoring(GLUED, aliases="mean"))
    assert len(passes) == 1
    assert not any(value.requires_grad for value in (result.logprobs, result.entropy, result.values))


def test_without_scaffold_nothing_is_added(passes: list[tuple[int, int]]) -> None:
    batch = [episode(turn([1, 2], [3]), turn([4] * 3, [5], ANSWER), golds=[])]
    result = score_episodes(byte_policy(), batch)
    assert passes == [(1, 7)]
    assert result.probe_tokens == 0
    assert result.episodes == tuple(batch)
    assert result.values.isnan().all()


def test_only_groups_whose_outcomes_differ() -> None:
    turns = (turn([1, 2], [3]), turn([4] * 3, [5], ANSWER))
    batch = [
        episode(*turns, group=group, outcome=outcome) for group, outcome in ((0, 1.0), (1, 1.0), (0, 1.0), (1, 0.0))
    ]
    policy = byte_policy()
    everything, mixed = (
        score_episodes(policy, batch, Scoring(GLUED)),
        score_episodes(policy, batch, Scoring(GLUED, only_mixed_groups=True)),
    )
    assert [item.turns[0].information_gain is None for item in mixed.episodes] == [True, False, True, False]
    assert mixed.episodes[1].turns[0].information_gain == pytest.approx(
        everything.episodes[1].turns[0].information_gain, abs=1e-6
    )
    assert mixed.probe_tokens * 2 == everything.probe_tokens


def test_a_probe_that_does_not_fit_is_missing() -> None:
    # 6 tokens in all; "Paris" behind "<answer>" needs some places more than remain after the last observation
    item = episode(turn([1, 2], [3]), turn([4], [5]), turn([6], [7], ANSWER))
    probe_tokens = score_episodes(byte_policy(), [item], Scoring(GLUED)).probe_tokens // 3
    policy = byte_policy(max_tokens=4 + probe_tokens)  # the cuts are 2, 4 and 6
    result = score_episodes(policy, [item], Scoring(GLUED))
    assert [step.information_gain is None for step in result.episodes[0].turns] == [False, True, True]
    assert result.values[0].isnan().tolist() == [False, False, True, True]


def test_no_episode_has_no_scores() -> None:
    scores = score_episodes(byte_policy(), [], Scoring(GLUED))
    assert (scores.episodes, scores.tokens.token_ids.shape, scores.values.shape) == ((), (0, 0), (0, 0))


@pytest.mark.parametrize("golds", [(), ("",), (" \n", "\t"), ("<|end|>",), ("<|end|><|end|>", "")])
def test_a_question_without_scorable_gold_is_named(golds: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"question 'q-7' has gold answers .* neither blank nor only special tokens"):
        score_episodes(byte_policy(), [episode(turn([1], [2], ANSWER), golds=golds, question_id="q-7")], Scoring(GLUED))


@pytest.mark.parametrize("aliases", ["first", "max", "mean"])
def test_unscorable_aliases_are_passed_over(aliases: Any) -> None:
    turns = (turn([1, 2], [3]), turn([4] * 3, [5], ANSWER))
    golds = ("", "<|end|>", "Paris", "Paris", " ")
    result = score_episodes(
        byte_policy(),
        [episode(*turns, golds=golds), episode(*turns, golds=("Paris",))],
        Scoring(GLUED, aliases=aliases),
    )
    assert result.values[0].tolist() == pytest.approx(result.values[1].tolist(), abs=1e-6, nan_ok=True)
    assert result.episodes[0].gold_answers == golds


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        pad_token_id = 0
        is_fast = False

        def __len__(self) -> int:
            return 10

    with pytest.raises(ValueError, match="Slow gives no character offsets, expected a fast tokenizer"):
        score_episodes(Policy(byte_policy().model, Slow()), [episode(turn([1], [2], ANSWER))], Scoring(GLUED))


def test_an_episode_longer_than_the_context_is_named() -> None:
    with pytest.raises(
        ValueError, match="an episode of question 'q-9': got 11 tokens, expected at most the model's context of 10"
    ):
        score_episodes(
            byte_policy(max_tokens=10), [episode(turn(range(10), [2], ANSWER), question_id="q-9")], Scoring(GLUED)
        )


@pytest.mark.parametrize("part", ["gold answer", "sampled tokens"])
def test_numbers_that_are_not_finite_are_errors(part: str) -> None:
    policy = byte_policy(seed=11 if part == "gold answer" else 12)
    poisoned = (
        policy.tokenizer(SCAFFOLD.prefix, add_special_tokens=False)["input_ids"][1] if part == "gold answer" else 3
    )
    with torch.no_grad():
        policy.model.model.embed_tokens.weight[poisoned] = torch.nan
    item = episode(turn([1, 2], [3, 4], ANSWER), question_id="q-5")
    with pytest.raises(NumericalError, match=f"{part} is not finite in an episode of question 'q-5' \\(seed 0\\)"):
        score_episodes(policy, [item], Scoring(SCAFFOLD))


def test_an_episode_must_begin_with_a_prompt() -> None:
    with pytest.raises(ValueError, match="begins with a policy token"):
        score_episodes(byte_policy(), [episode(turn([], [2], ANSWER))])


def test_failed_episodes_pass_through_unscored() -> None:
    """Only groups 0 and 1 are mixed; of what failed, nothing is known, not even that its outcome differs."""
    turns = (turn([1, 2], [3]), turn([4] * 3, [5], ANSWER))
    broken = replace(episode(turn([1], [2] * 9), group=1, outcome=9.0), stop=StopReason.FAILED)
    played = [episode(*turns, group=group, outcome=outcome) for group, outcome in ((0, 0.0), (0, 1.0), (1, 1.0))]
    mixed = Scoring(GLUED, only_mixed_groups=True)
    alone, among = (
        score_episodes(byte_policy(), batch, mixed) for batch in (played, [broken, *played[:2], broken, played[2]])
    )
    assert (among.episodes[0], among.episodes[3]) == (broken, broken)
    assert tuple(among.played) == alone.episodes
    assert among.episodes[4].turns[0].information_gain is None
    for name in ("logprobs", "entropy", "values"):
        torch.testing.assert_close(getattr(among, name), getattr(alone, name), atol=0, rtol=0, equal_nan=True)
    nothing = score_episodes(byte_policy(), [broken], mixed)
    assert (nothing.episodes, nothing.tokens.token_ids.shape) == ((broken,), (0, 0))
