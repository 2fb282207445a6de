"""Episodes by hand, and the obvious scorer: one plain forward per probe, no padding, no sharing."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy

SCAFFOLD = Scaffold("<think> The evidence is sufficient to answer. </think>\n<answer> ", " </answer>")
GLUED = Scaffold("<answer>", "</answer>")
SEARCH, ANSWER, INVALID = ActionKind.SEARCH, ActionKind.ANSWER, ActionKind.INVALID


def turn(context: Sequence[int], action: Sequence[int], kind: ActionKind = SEARCH, **fields: Any) -> Turn:
    return Turn(tuple(context), tuple(action), (-1.0,) * len(action), kind, **fields)


def episode(
    *turns: Turn,
    stop: StopReason = StopReason.ANSWERED,
    closing: Sequence[int] = (),
    golds: Sequence[str] = ("Paris",),
    **fields: Any,
) -> Episode:
    values: dict[str, Any] = {"group": 0, "question_id": "q-1", "seed": 0, "outcome": 0.0} | fields
    return Episode(turns=turns, stop=stop, closing_ids=tuple(closing), gold_answers=tuple(golds), **values)


def plain_logprobs(policy: Policy, token_ids: Sequence[int]) -> torch.Tensor:
    """[token]: log-probability of token i given those before it; NaN for the first."""
    ids = torch.tensor([list(token_ids)])
    with torch.no_grad():
        logits = policy.model(ids).logits[0].float()
    chosen = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return torch.cat([torch.tensor([torch.nan]), chosen])


def plain_value(policy: Policy, prefix: Sequence[int], scaffold: Scaffold, gold: str) -> float:
    """Mean log-probability of the tokens that cover the gold's characters; the closing text is left in place."""
    encoded = policy.tokenizer(
        scaffold.prefix + gold + scaffold.suffix, add_special_tokens=False, return_offsets_mapping=True
    )
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
    observed = [
        step.action is SEARCH and shown[k] > seen[k] + len(step.action_ids) for k, step in enumerate(item.turns)
    ]
    return [value(shown[k]) - value(seen[k]) if observed[k] else None for k in range(item.num_turns)]
