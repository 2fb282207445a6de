"""Our environment and credit inside TRL: one real training step, and TRL's loss against ours on the same episodes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig

from a2tgpo import config
from a2tgpo.algorithms import A2TGPO, ALGORITHMS, DAPO, GRPO, GSPO, Algorithm, LossInputs, LossSpec, compute_loss
from a2tgpo.batch import collate, spread
from a2tgpo.bench import TINY_MODEL, Shape, bench_episodes, bench_policy
from a2tgpo.engines.base import Request
from a2tgpo.errors import RetrievalError, RolloutError
from a2tgpo.policy import Policy
from a2tgpo.training.score import TrainingBatch
from a2tgpo.training.update import Updater
from tests.support.small_world import small_env
from tests.support.tiny_models import tiny_policy
from tests.support.written_engine import WrittenEngine, encoder

pytest.importorskip("trl", reason="needs TRL: pip install 'a2tgpo[trl]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and its dependencies' own


def writer(tokenizer: Any) -> WrittenEngine:
    """An engine that writes well-formed actions at random, as an untrained model does not: a search for one of the
    world's words, or one as the answer.
    """

    def action(request: Request) -> Sequence[int]:
        rng = Random(request.seed)
        kind = rng.choice(["search", "answer"])
        return encoder(tokenizer)(f"<{kind}> w{rng.randrange(20)} </{kind}>")

    return WrittenEngine(action)


def trainer_of(algorithm: Algorithm, folder: Path, policy: Policy | None = None, **arguments: Any) -> Any:
    from trl import GRPOConfig

    from a2tgpo.integrations.trl import CreditTrainer, arguments_of

    args = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        gradient_checkpointing=False,
        **{"per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 1, "learning_rate": 1e-2}
        | arguments
        | arguments_of(algorithm.loss),
    )
    policy = policy or tiny_policy()
    engine = writer(policy.tokenizer)
    return CreditTrainer(
        policy, algorithm, small_env(8), args, max_action_tokens=6, max_episode_tokens=120, engine=engine
    )


def generated(trainer: Any, questions: int = 2) -> tuple[list[Any], dict[str, Any]]:
    """Episodes and TRL's batch of them."""
    rows = [{"prompt": f"q{question}"} for question in range(questions) for _ in range(trainer.num_generations)]
    trainer.model.train()
    batch = trainer._generate_and_score_completions(rows)
    trainer.current_gradient_accumulation_steps = 1
    return [row["episode"] for row in rows], batch


def test_one_training_step_moves_the_policy(tmp_path: Path) -> None:
    policy = tiny_policy()
    before = policy.weights_hash()
    trainer = trainer_of(A2TGPO(), tmp_path, policy)
    result = trainer.train()
    assert torch.tensor(result.training_loss).isfinite()
    assert policy.weights_hash() != before
    logged = trainer.state.log_history[0]
    assert logged["completions/mean_length"] > 0
    assert 0 <= logged["reward"] <= 1


class Flaky:
    """A retriever that refuses some words, always."""

    def __init__(self, inner: Any, refused: set[str]) -> None:
        self.inner, self.refused = inner, refused

    def search(self, queries: Sequence[str], k: int) -> Any:
        found = self.inner.search(queries, k)
        return [
            RetrievalError("HTTP 400", transient=False) if query in self.refused else hits
            for query, hits in zip(queries, found, strict=True)
        ]


@pytest.mark.parametrize("algorithm", [A2TGPO(), GRPO()], ids=["with gain", "without"])
def test_failed_searches_neither_end_the_training_nor_count(algorithm: Algorithm, tmp_path: Path) -> None:
    trainer = trainer_of(algorithm, tmp_path)
    pool = trainer.rollout.env.pool
    object.__setattr__(pool, "retrievers", Flaky(pool.retrievers, {f"w{word}" for word in range(0, 20, 3)}))
    episodes, batch = generated(trainer)
    failed = [episode.failed for episode in episodes]
    assert 0 < sum(failed) <= 4
    for row, broken in enumerate(failed):
        if broken:
            assert not batch["tool_mask"][row].any()
            assert not batch["advantages"][row].any()
    # the others' credit is that of a group without the failed
    grouped = [replace(episode, group=place // 4) for place, episode in enumerate(episodes)]
    played = [episode for episode in grouped if not episode.failed]
    credit = algorithm(algorithm.tabulate(played))
    rows = [row for row, broken in enumerate(failed) if not broken]
    torch.testing.assert_close(batch["advantages"][rows], spread(credit.advantage, batch["turn"][rows]))
    assert torch.tensor(trainer.train().training_loss).isfinite()


def test_a_search_engine_that_is_down_ends_the_training_with_its_cause(tmp_path: Path) -> None:
    trainer = trainer_of(A2TGPO(), tmp_path)
    pool = trainer.rollout.env.pool
    object.__setattr__(pool, "retrievers", Flaky(pool.retrievers, {f"w{word}" for word in range(20)}))
    trainer.max_failed = 0.1
    with pytest.raises(RolloutError, match=r"episodes of a batch failed, .* \(retrieval: HTTP 400, \d times\)"):
        trainer.train()


@pytest.mark.parametrize(
    "algorithm",
    [
        A2TGPO(loss=LossSpec(ratio="turn", clip_low=0.05, clip_high=0.08, aggregation="seq-mean-token-mean")),
        A2TGPO(
            loss=LossSpec(
                ratio="token", clip_low=0.05, clip_high=0.08, dual_clip=1.2, aggregation="seq-mean-token-mean"
            )
        ),
        ALGORITHMS["gigpo"](loss=LossSpec(clip_low=0.05, clip_high=0.05, aggregation="token-mean")),
        GSPO(),
        DAPO(),
        GRPO(loss=LossSpec(aggregation="seq-mean-token-sum")),
    ],
    ids=["turn", "dual", "gigpo", "gspo", "dapo", "sum"],
)
def test_loss_and_gradient_are_ours(algorithm: Algorithm, tmp_path: Path) -> None:
    policy = tiny_policy()
    trainer = trainer_of(algorithm, tmp_path, policy)
    episodes, batch = generated(trainer)
    # The world gives few outcomes to an untrained model, so credit is drawn; old log-probabilities are moved, so that
    # ratios leave the clip range.
    tokens = collate(episodes, policy.pad_token_id)
    generator = torch.Generator().manual_seed(0)
    turns = max(episode.num_turns for episode in episodes)
    advantage = torch.randn(len(episodes), turns, generator=generator)
    clip_scale = 0.7 + 0.6 * torch.rand(len(episodes), turns, generator=generator)
    logprobs = policy.token_logprobs(tokens).logprobs
    old = logprobs.detach() + 0.1 * torch.randn(logprobs.shape, generator=generator)
    batch["advantages"], batch["clip_scale"] = spread(advantage, batch["turn"]), spread(clip_scale, batch["turn"])
    batch["old_per_token_logps"] = torch.zeros_like(batch["advantages"])
    for row, episode in enumerate(episodes):
        start = len(episode.turns[0].context_ids)
        batch["old_per_token_logps"][row, : episode.num_tokens - start] = old[row, start : episode.num_tokens]

    theirs = trainer._compute_loss(trainer.model, batch)
    inputs = LossInputs(
        logprobs, old, spread(advantage, tokens.turn), spread(clip_scale, tokens.turn), tokens.turn, tokens.action_mask
    )
    ours = compute_loss(algorithm.loss, inputs)
    assert 0.05 < ours.clip_fraction < 0.95
    assert float(ours.loss.detach()) == pytest.approx(float(theirs.detach()), abs=1e-4)
    parameters = list(policy.model.parameters())
    for mine, other in zip(
        torch.autograd.grad(ours.loss, parameters), torch.autograd.grad(theirs, parameters), strict=True
    ):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_batch_carries_the_algorithm_s_credit(tmp_path: Path) -> None:
    trainer = trainer_of(A2TGPO(), tmp_path)
    episodes, batch = generated(trainer)
    from dataclasses import replace

    grouped = [replace(episode, group=place // 4) for place, episode in enumerate(episodes)]
    table = trainer.algorithm.tabulate(grouped)
    credit = trainer.algorithm(table)
    assert bool(table.scored.any())  # information gain was measured
    assert bool((credit.clip_scale[table.scored] != 1).any())
    for row, episode in enumerate(episodes):
        start = len(episode.turns[0].context_ids)
        for place, turn in enumerate(episode.turn_index[start:]):
            assert batch["turn"][row, place] == turn
            assert batch["tool_mask"][row, place] == (turn >= 0)
            expected = credit.advantage[row, turn].item() if turn >= 0 else 0.0
            assert batch["advantages"][row, place].item() == pytest.approx(expected)
            if turn >= 0:
                assert batch["clip_scale"][row, place].item() == pytest.approx(credit.clip_scale[row, turn].item())


def test_what_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    from trl import GRPOConfig

    from a2tgpo.integrations.trl import CreditTrainer, arguments_of

    with pytest.raises(ValueError, match=r"loss.surrogate: got 'cispo', which TRL's loss cannot express"):
        arguments_of(ALGORITHMS["cispo"]().loss)
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    with pytest.raises(ValueError, match=r"args.epsilon: got 0.2, expected 0.003 .*arguments_of"):
        CreditTrainer(tiny_policy(), A2TGPO(), small_env(8), args, max_action_tokens=6, max_episode_tokens=120)


@pytest.mark.parametrize(("vocabulary", "least"), [(550, 1.05), (2048, 1.25)])
def test_our_update_computes_less_than_trl_s(vocabulary: int, least: float, tmp_path: Path) -> None:
    """The same 64 episodes, four mini-batches, forward and backward and optimiser, in floating point operations.

    TRL computes logits and entropy at every token behind the prompt, we at the policy's tokens; how much that saves
    depends on the vocabulary.
    """
    policy = bench_policy(LlamaConfig(**TINY_MODEL.to_dict() | {"vocab_size": vocabulary}), "float32", "cpu")
    episodes = bench_episodes(Shape(tokens=120, searches=3, action_tokens=8, episodes=64, shortest=0.5), vocabulary)
    algorithm = A2TGPO()
    trainer = trainer_of(algorithm, tmp_path, policy, per_device_train_batch_size=16, num_generations=8)
    tokens = collate(episodes, policy.pad_token_id)
    table = algorithm.tabulate(episodes)
    credit = algorithm(table)
    with torch.no_grad():
        old = policy.token_logprobs(tokens).logprobs
    updater = Updater(
        policy, config.UpdateSettings(learning_rate=1e-9, mini_batches=4, micro_batch_tokens=4096), algorithm.loss, 1, 0
    )
    sample = TrainingBatch(tokens, old, table.group, credit)
    batches = [
        trl_batch(episodes[start : start + 16], old[start : start + 16], credit, start) for start in range(0, 64, 16)
    ]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-9)
    trainer.current_gradient_accumulation_steps = 1

    def theirs() -> None:
        policy.model.train()
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            trainer._compute_loss(trainer.model, batch).backward()
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 0.5)
            optimizer.step()

    def ours() -> None:
        updater(sample, 0)

    assert operations(theirs) / operations(ours) > least


def trl_batch(episodes: list[Any], old: torch.Tensor, credit: Any, first: int) -> dict[str, Any]:
    """Recorded episodes as TRL's batch."""
    from a2tgpo.integrations.trl import _completion_turns

    prompts, rests = (
        [list(e.turns[0].context_ids) for e in episodes],
        [list(e.token_ids[len(e.turns[0].context_ids) :]) for e in episodes],
    )
    left, right = max(map(len, prompts)), max(map(len, rests))
    turn = _completion_turns(episodes, right)
    rows = slice(first, first + len(episodes))
    old_rest = torch.zeros(len(episodes), right)
    for row, (prompt, rest) in enumerate(zip(prompts, rests, strict=True)):
        old_rest[row, : len(rest)] = old[row, len(prompt) : len(prompt) + len(rest)]
    return {
        "prompt_ids": torch.tensor([[0] * (left - len(ids)) + ids for ids in prompts]),
        "prompt_mask": torch.tensor([[0] * (left - len(ids)) + [1] * len(ids) for ids in prompts]),
        "completion_ids": torch.tensor([ids + [0] * (right - len(ids)) for ids in rests]),
        "completion_mask": torch.tensor([[1] * len(ids) + [0] * (right - len(ids)) for ids in rests]),
        "tool_mask": (turn >= 0).long(),
        "turn": turn,
        "advantages": spread(credit.advantage[rows], turn),
        "clip_scale": spread(credit.clip_scale[rows], turn),
        "old_per_token_logps": old_rest,
    }


def operations(work: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
