from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2tgpo.batch import TokenBatch, collate
from a2tgpo.episode import Episode, StopReason
from a2tgpo.information_gain import Scoring, score_episodes
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy, attention
from a2tgpo.policy.attention import ProbeMask
from tests.support.byte_models import byte_policy
from tests.support.plain_gains import ANSWER, GLUED, SCAFFOLD, episode, plain_gains, plain_logprobs, turn

GOLDS = st.one_of(
    st.sampled_from(
        [
            "Paris",
            "New York City",
            "1248",
            "東京",
            "São Paulo",
            "a",
            " spaced  out ",
            "naïve café\n",
            "🗼🗼",
            "x" * 40,
            "the the",
            "</answer>",
        ]
    ),
    st.text(min_size=1, max_size=12).filter(lambda text: bool(text.strip())),
)
TOKENS = st.lists(st.integers(1, 390), min_size=1, max_size=9)


PLANS = st.fixed_dictionaries(
    {
        "searches": st.lists(st.tuples(TOKENS, TOKENS), max_size=6),
        "answer": st.one_of(st.none(), st.tuples(TOKENS, TOKENS)),
        "closing": st.one_of(st.just([]), TOKENS),
        "golds": st.lists(GOLDS, min_size=1, max_size=3, unique=True),
    }
)


def planned(plan: dict[str, Any]) -> Episode:
    """Episodes are built outside the strategies, since the run-time type checker draws random numbers of its own."""
    turns = [turn(context, action) for context, action in plan["searches"]]
    if plan["answer"] is None and turns:
        return episode(*turns, stop=StopReason.MAX_TURNS, closing=plan["closing"], golds=plan["golds"])
    context, action = plan["answer"] or ([1], [2])
    return episode(*turns, turn(context, action, ANSWER), golds=plan["golds"])


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    plans=st.lists(PLANS, min_size=1, max_size=3),
    scaffold=st.sampled_from([SCAFFOLD, GLUED, Scaffold("", "")]),
    aliases=st.sampled_from(["first", "max", "mean"]),
    micro_batch_tokens=st.sampled_from([1, 300, 16384]),
)
def test_one_pass_equals_one_forward_per_probe(
    kind: str, plans: list[Any], scaffold: Scaffold, aliases: Any, micro_batch_tokens: int
) -> None:
    policy = byte_policy(kind)
    batch = [planned(plan) for plan in plans]
    result = score_episodes(policy, batch, Scoring(scaffold, aliases=aliases, micro_batch_tokens=micro_batch_tokens))
    tokens = collate(batch, policy.pad_token_id)
    assert result.logprobs.shape == tokens.token_ids.shape
    for row, (before, after) in enumerate(zip(batch, result.episodes, strict=True)):
        gains = [step.information_gain for step in after.turns]
        assert gains == pytest.approx(plain_gains(policy, before, scaffold, aliases, "logprob"), abs=1e-5)
        gains = [step.probability_gain for step in after.turns]
        assert gains == pytest.approx(plain_gains(policy, before, scaffold, aliases, "prob"), abs=1e-6)
        plain = plain_logprobs(policy, before.token_ids)
        mask = torch.tensor(before.action_mask)
        torch.testing.assert_close(result.logprobs[row, : before.num_tokens][mask], plain[mask], atol=1e-5, rtol=0)
        assert not result.logprobs[row][~tokens.action_mask[row]].any()


@pytest.mark.parametrize(
    ("kind", "attention", "aliases"),
    [
        ("llama", "sdpa", "max"),
        ("llama", "flex", "mean"),
        ("qwen2", "sdpa", "mean"),
        ("qwen2", "flex", "max"),
        ("qwen3", "sdpa", "max"),
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_twenty_aliases_of_up_to_forty_tokens(kind: str, attention: Any, aliases: Any) -> None:
    policy = byte_policy(kind)
    golds = [f"São Paulo {'東京' * (n % 11)} number {n} of the year {1000 + n * n}" for n in range(20)]
    sizes = [len(policy.tokenizer(gold)["input_ids"]) for gold in golds]
    assert max(sizes) >= 40
    batch = [
        episode(turn([5, 6, 7], [8, 9]), turn(range(20, 60), [3] * 4), turn([1], [2], ANSWER), golds=golds),
        episode(turn([5, 6, 7], [8, 9]), turn([4], [4]), stop=StopReason.MAX_TURNS, closing=[7, 8], golds=golds),
    ]
    result = score_episodes(policy, batch, Scoring(SCAFFOLD, aliases=aliases, attention=attention))
    for before, after in zip(batch, result.episodes, strict=True):
        assert [step.information_gain for step in after.turns] == pytest.approx(
            plain_gains(policy, before, SCAFFOLD, aliases, "logprob"), abs=1e-5
        )


@pytest.mark.parametrize("columns_per_block", [6, 25, 1000])
def test_probes_in_one_block_or_many(columns_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_COLUMNS_PER_BLOCK", columns_per_block)
    policy = byte_policy("qwen2")
    batch = [
        episode(
            turn(range(1, 9), [8, 9]), turn(range(20, 40), [3] * 4), turn([1], [2], ANSWER), golds=["New York City"]
        ),
        episode(turn([5, 6], [8]), turn([4], [4]), stop=StopReason.MAX_TURNS, closing=[7, 8], golds=["São Paulo"]),
    ]
    for before, after in zip(batch, score_episodes(policy, batch, Scoring(SCAFFOLD)).episodes, strict=True):
        assert [step.information_gain for step in after.turns] == pytest.approx(
            plain_gains(policy, before, SCAFFOLD, "first", "logprob"), abs=1e-5
        )


def test_a_block_of_probes_passes_over_what_only_later_ones_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_COLUMNS_PER_BLOCK", 10)
    # 29 // 10 = 2 blocks, of 3 and 2 probe tokens
    mask = ProbeMask(torch.zeros((1, 5, 29), dtype=torch.bool), (8, 8, 15, 15, 29))
    assert mask.blocks() == [(slice(0, 3), 15), (slice(3, 5), 29)]


def test_shared_beginnings_of_aliases_are_computed_once() -> None:
    policy = byte_policy()
    texts = [
        policy.tokenizer(f"{SCAFFOLD.prefix}{gold}{SCAFFOLD.suffix}", add_special_tokens=False)["input_ids"]
        for gold in ("1248", "1249")
    ]
    one = score_episodes(policy, [episode(turn([1], [2], ANSWER), golds=["1248"])], Scoring(SCAFFOLD, aliases="max"))
    two = score_episodes(
        policy, [episode(turn([1], [2], ANSWER), golds=["1248", "1249", "1248"])], Scoring(SCAFFOLD, aliases="max")
    )
    # the closing text and the last gold token are never read
    assert len(texts[0]) - 10 < one.probe_tokens < len(texts[0])
    assert one.probe_tokens <= two.probe_tokens <= one.probe_tokens + 3


def test_bfloat16_stays_near_float32() -> None:
    item = episode(
        turn(range(1, 9), [8, 9]), turn(range(20, 40), [3] * 4), turn([1], [2], ANSWER), golds=["New York City"]
    )
    torch.manual_seed(0)
    exact = byte_policy("llama", seed=3)
    rounded = Policy(type(exact.model)(exact.model.config).to(torch.bfloat16).eval(), exact.tokenizer)
    rounded.model.load_state_dict(
        {name: weight.to(torch.bfloat16) for name, weight in exact.model.state_dict().items()}
    )
    low, high = (score_episodes(policy, [item], Scoring(SCAFFOLD)) for policy in (rounded, exact))
    assert low.logprobs.dtype == torch.float32
    assert low.values[0].tolist() == pytest.approx(high.values[0].tolist(), abs=0.03, nan_ok=True)


def test_the_padding_side_of_the_tokenizer_does_not_matter() -> None:
    policy = byte_policy("qwen2")
    batch = [episode(turn([1, 2], [3]), turn(range(4, 4 + n), [9, 9], ANSWER)) for n in (1, 8, 3)]
    before = policy.tokenizer.padding_side
    results = []
    for side in ("left", "right"):
        policy.tokenizer.padding_side = side
        results.append(score_episodes(policy, batch, Scoring(SCAFFOLD)))
    policy.tokenizer.padding_side = before
    torch.testing.assert_close(results[0].values, results[1].values, atol=0, rtol=0, equal_nan=True)


def test_rounding_does_not_tell_equal_episodes_of_a_group_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight times the same episode, among others of its length: in bfloat16 they once differed by where they stood."""
    exact = byte_policy("llama", seed=3)
    policy = Policy(exact.model, exact.tokenizer, passes_in=torch.bfloat16)
    passes: list[list[int]] = []
    take = TokenBatch.take

    def counted(self: TokenBatch, rows: list[int]) -> TokenBatch:
        passes.append([row for row in rows if row % 6 == 0])
        return take(self, rows)

    monkeypatch.setattr(TokenBatch, "take", counted)
    batch = [
        episode(turn(range(1, 9), [8, 9]), turn(range(20, 40), [3] * 4), turn([1], [2], ANSWER), group=0)
        if row % 6 == 0
        else episode(turn(range(1, 9), [8, 9]), turn(range(20, 40), [row] * 4), turn([1], [2], ANSWER), group=row % 6)
        for row in range(48)
    ]
    for tokens in (10**6, 1200, 900):  # of about 80 places an episode
        passes.clear()
        scored = score_episodes(policy, batch, Scoring(SCAFFOLD, micro_batch_tokens=tokens))
        assert [rows for rows in passes if rows] == [list(range(0, 48, 6))]
        gains = {tuple(step.information_gain for step in item.turns) for item in scored.episodes if item.group == 0}
        assert len(gains) == 1
