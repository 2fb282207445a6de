"""The loop learns: a policy that answers with a random word comes to answer with the right one.

Everything is the real thing (environment, engine, one-pass scoring, algorithm, update); only the world is ten questions
and the model has 30,000 weights.
"""

from functools import cache

import pytest
import torch

from a2tgpo import config
from a2tgpo.algorithms import ALGORITHMS
from a2tgpo.batch import collate
from a2tgpo.information_gain import measure
from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.policy import Policy
from a2tgpo.training.evaluate import episode_metrics
from a2tgpo.training.rollout import Task
from a2tgpo.training.update import TrainingBatch, Updater
from tests.support.small_world import small_rollout
from tests.support.tiny_models import WORDS, tiny_policy

QUESTIONS, GROUP, STEPS = 5, 12, 25


@cache
def formatted_weights() -> dict[str, torch.Tensor]:
    """Weights that know how an answer is written, and nothing about which word is right."""
    policy = tiny_policy()
    ids = {word: index for index, word in enumerate(WORDS)}
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    for _ in range(120):
        words = torch.randint(ids["w0"], ids["w19"] + 1, (32, 3), generator=generator)
        fixed = {name: torch.full((32, 1), ids[name]) for name in ("<unk>", "<answer>", "</answer>")}
        rows = torch.cat([fixed["<unk>"], words[:, :2], fixed["<answer>"], words[:, 2:], fixed["</answer>"]], dim=1)
        loss = torch.nn.functional.cross_entropy(policy.model(rows).logits[:, 2:-1].transpose(1, 2), rows[:, 3:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: weight.clone() for name, weight in policy.model.state_dict().items()}


def starting_policy() -> Policy:
    policy = tiny_policy()
    policy.model.load_state_dict(formatted_weights())
    return policy


@pytest.mark.parametrize("name", ["grpo", "a2tgpo", "igpo", "gigpo"])
def test_answers_become_right(name: str) -> None:
    policy = starting_policy()
    algorithm = ALGORITHMS[name]()
    updater = Updater(policy, config.UpdateSettings(learning_rate=3e-3, mini_batches=2), algorithm.loss, STEPS, seed=0)
    rollout = small_rollout(policy, QUESTIONS * GROUP)
    scores = []
    for step in range(STEPS):
        tasks = [
            Task(group, f"q{group}", 1000 * step + GROUP * group + place)
            for group in range(QUESTIONS)
            for place in range(GROUP)
        ]
        measured = measure(policy, rollout(tasks), Scaffold(*rollout.env.protocol.scaffold))
        table = algorithm.tabulate(measured.episodes)
        tokens = collate(measured.episodes, policy.pad_token_id)
        updater(TrainingBatch(tokens, measured.scores.logprobs, table.group, algorithm(table)), step)
        rollout.engine.load_weights(policy, step + 1)
        scores.append(episode_metrics(measured.episodes)["em"])
    before, after = sum(scores[:3]) / 3, sum(scores[-3:]) / 3
    assert before < 0.3  # two of twenty words are right
    assert after > before + 0.3, scores
