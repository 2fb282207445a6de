"""What is said of a training step."""

import torch

from a2tgpo.batch import Credit, TurnTable
from a2tgpo.information_gain.metrics import gain_metrics
from a2tgpo.training.evaluate import episode_metrics
from a2tgpo.training.sampler_gap import mismatch_metrics
from a2tgpo.training.score import ScoredBatch


def step_metrics(batch: ScoredBatch, questions: int, importance_cap: float | None) -> dict[str, float]:
    """Episodes, gains, credit and sampler of a step, before the update.

    Args:
        questions: that the step asked.
        importance_cap: of the algorithm's loss.
    """
    scores = batch.scores
    return (
        episode_metrics(scores.episodes)
        | {"failed_groups": questions - float(batch.table.num_groups)}
        | gain_metrics(scores)
        | mismatch_metrics(scores.tokens, scores.logprobs, importance_cap)
        | credit_metrics(batch.table, batch.credit)
        | {"entropy": float(scores.entropy[scores.tokens.action_mask].mean())}
    )


def credit_metrics(table: TurnTable, credit: Credit) -> dict[str, float]:
    """What the algorithm made of the batch: share of groups with any credit, its size, and the spread of the clip
    ranges.
    """
    varied = torch.zeros(table.num_groups).index_add(0, table.group, (credit.advantage != 0).any(dim=1).float()) > 0
    scale, advantage = credit.clip_scale[table.mask], credit.advantage[table.mask]
    return {
        "informative_groups": float(varied.float().mean()),
        "advantage_abs": float(advantage.abs().mean()),
        "advantage_min": float(advantage.min()),
        "advantage_mean": float(advantage.mean()),
        "advantage_max": float(advantage.max()),
        "clip_scale_min": float(scale.min()),
        "clip_scale_max": float(scale.max()),
    }
