"""Policies that can learn, and runs over the small world that teach them."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path

import torch

from a2tgpo.algorithms import Algorithm
from a2tgpo.config import Recipe, RolloutSettings, TrainingSettings, UpdateSettings
from a2tgpo.information_gain import Scaffold, Scoring
from a2tgpo.policy import Policy
from a2tgpo.run_folder.log import RunLog
from a2tgpo.training.parts import Parts, Split
from a2tgpo.training.run import Run
from a2tgpo.training.update import Updater
from tests.support.small_world import QUESTIONS, small_rollout
from tests.support.tiny_models import WORDS, tiny_policy


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


@contextmanager
def small_run(
    folder: Path,
    policy: Policy,
    algorithm: Algorithm,
    rollout: RolloutSettings,
    update: UpdateSettings,
    steps: int,
    reference: Policy | None = None,
) -> Iterator[Run]:
    """A run over the small world, as `open_run` makes one over the recipe's. It keeps nothing but metrics, and is
    evaluated and saved after its last step only.
    """
    recipe = Recipe(
        rollout=rollout,
        update=update,
        training=TrainingSettings(
            steps=steps, evaluate_every=steps, log_episodes_every=steps, checkpoint_every=steps, evaluate_questions=10
        ),
    )
    player = small_rollout(policy, rollout.questions * rollout.group_size)
    split = Split(QUESTIONS, player)
    parts = Parts(
        policy,
        player.engine,
        algorithm,
        split,
        split,
        Scoring(Scaffold(*player.env.protocol.scaffold), micro_batch_tokens=update.micro_batch_tokens),
    )
    for name in ("evaluations", "episodes"):
        (folder / name).mkdir()
    updater = Updater(policy, update, algorithm.loss, steps, seed=0)
    log = RunLog(folder)
    if reference is None and algorithm.loss.kl != "none":
        reference = deepcopy(policy)
    try:
        yield Run(recipe, folder, parts, updater, log, lambda _kind, _step, _values: None, reference)
    finally:
        log.close()
