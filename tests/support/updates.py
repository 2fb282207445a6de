"""A batch ready for the update, and settings under which one step moves the weights clearly."""

import torch

from a2tgpo import config
from a2tgpo.batch import Credit, collate, tabulate
from a2tgpo.information_gain import score_episodes
from a2tgpo.policy import Policy
from a2tgpo.training.rollout import Task
from a2tgpo.training.score import TrainingBatch
from tests.support.small_world import small_rollout

SETTINGS = config.UpdateSettings(learning_rate=1e-2, mini_batches=2)


def sample_of(policy: Policy, seed: int = 0) -> TrainingBatch:
    tasks = [Task(group, f"q{group}", 100 * seed + 10 * group + place) for group in range(4) for place in range(4)]
    episodes = small_rollout(policy, 16)(tasks)
    table = tabulate(episodes)
    generator = torch.Generator().manual_seed(seed)
    advantage = torch.randn(table.mask.shape, generator=generator).where(table.mask, 0.0)
    return TrainingBatch(
        collate(episodes, policy.pad_token_id),
        score_episodes(policy, episodes).logprobs,
        table.group,
        Credit.of(advantage),
    )
