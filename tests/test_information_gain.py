import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2tgpo.batch import collate
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.information_gain import measure
from a2tgpo.policy import Policy
from a2tgpo.probes import Scaffold
from tests.tiny_policy import tiny_policy, tiny_tokenizer

SCAFFOLD = Scaffold("<think> The evidence is sufficient to answer. </think>\n<answer> ", " </answer>")
GLUED = Scaffold("<answer>", "</answer>")
SEARCH, ANSWER, INVALID = ActionKind.SEARCH, ActionKind.ANSWER, ActionKind.INVALID


def turn(context: Sequence[int], action: Sequence[int], kind: ActionKind = SEARCH, **info: Any) -> Turn:
    return Turn(tuple(context), tuple(action), (-1.0,) * len(action), kind, info=info)


def episode(*turns: Turn, stop: StopReason = StopReason.ANSWERED, closing: Sequence[int] = (), golds: Sequence[str] = ("Paris",), **fields: Any) -> Episode:
    values = {"group": 0, "question_id": "q-1", "seed": 0, "outcome": 0.0} | fields
    return Episode(turns=turns, stop=stop, closing_ids=tuple(closing), gold_answers=tuple(golds), **values)


# ---- the oracle: one plain forward per probe, no padding, no sharing


def plain_logprobs(policy: Policy, token_ids: Sequence[int]) -> torch.Tensor:
    """[token]: log-probability of token i given those before it; NaN for the first."""
    ids = torch.tensor([list(token_ids)])
    with torch.no_grad():
        logits = policy.model(ids).logits[0].float()
    chosen = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return torch.cat([torch.tensor([torch.nan]), chosen])


def plain_value(policy: Policy, prefix: Sequence[int], scaffold: Scaffold, gold: str) -> float:
    """Mean log-probability of the tokens that cover the gold's characters; the closing text is left in place."""
    encoded = policy.tokenizer(scaffold.prefix + gold + scaffold.suffix, add_special_tokens=False, return_offsets_mapping=True)
    start, end = len(scaffold.prefix), len(scaffold.prefix) + len(gold)
    first = min(i for i, (_, last) in enumerate(encoded["offset_mapping"]) if last > start)
    last = max(i for i, (begin, finish) in enumerate(encoded["offset_mapping"]) if begin < end and finish > begin)
    scored = plain_logprobs(policy, [*prefix, *encoded["input_ids"]])[len(prefix) :]
    return float(scored[first : last + 1].double().mean())


def plain_gains(policy: Policy, item: Episode, scaffold: Scaffold, aliases: str, measure: str) -> list[float | None]:
    @cache
    def value(cut: int) -> float:
        values = [plain_value(policy, item.token_ids[:cut], scaffold, gold) for gold in item.gold_answers]
        values = [math.exp(v) for v in values] if measure == "prob" else values
        return {"first": values[0], "max": max(values), "mean": sum(values) / len(values)}[aliases]

    seen, shown = [], []  # tokens before each turn, and after its observation
    at = 0
    for k, step in enumerate(item.turns):
        seen.append(at + len(step.context_ids))
        at = seen[-1] + len(step.action_ids)
        shown.append(at + len(item.turns[k + 1].context_ids if k + 1 < item.num_turns else item.closing_ids))
    return [value(shown[k]) - value(seen[k]) if step.action is SEARCH and shown[k] > seen[k] + len(step.action_ids) else None for k, step in enumerate(item.turns)]


# ---- random episodes

GOLDS = st.one_of(
    st.sampled_from(["Paris", "New York City", "1248", "東京", "São Paulo", "a", " spaced  out ", "naïve café\n", "🗼🗼", "x" * 40, "the the the", "</answer>"]),
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
    turns = [turn(*step) for step in plan["searches"]]
    if plan["answer"] is None and turns:
        return episode(*turns, stop=StopReason.MAX_TURNS, closing=plan["closing"], golds=plan["golds"])
    return episode(*turns, turn(*(plan["answer"] or ([1], [2])), ANSWER), golds=plan["golds"])


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    plans=st.lists(PLANS, min_size=1, max_size=3),
    scaffold=st.sampled_from([SCAFFOLD, GLUED, Scaffold("", "")]),
    aliases=st.sampled_from(["first", "max", "mean"]),
    how=st.sampled_from(["logprob", "prob"]),
    micro_batch_tokens=st.sampled_from([1, 300, 16384]),
)
def test_one_pass_equals_one_forward_per_probe(kind: str, plans: list[dict[str, Any]], scaffold: Scaffold, aliases: Any, how: Any, micro_batch_tokens: int) -> None:
    policy = tiny_policy(kind)
    batch = [planned(plan) for plan in plans]
    result = measure(policy, batch, scaffold, aliases=aliases, measure=how, micro_batch_tokens=micro_batch_tokens)
    tokens = collate(batch, policy.pad_token_id)
    assert result.scores.logprobs.shape == tokens.token_ids.shape
    for row, (before, after) in enumerate(zip(batch, result.episodes, strict=True)):
        gains = [step.information_gain for step in after.turns]
        assert gains == pytest.approx(plain_gains(policy, before, scaffold, aliases, how), abs=1e-5)
        plain = plain_logprobs(policy, before.token_ids)
        mask = torch.tensor(before.action_mask)
        torch.testing.assert_close(result.scores.logprobs[row, : before.num_tokens][mask], plain[mask], atol=1e-5, rtol=0)
        assert not result.scores.logprobs[row][~tokens.action_mask[row]].any()
