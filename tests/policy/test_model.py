import contextlib
import io
import json
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from a2tgpo.batch import TokenBatch
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy, micro_batches, token_scores
from a2tgpo.policy.token_scores import score_tokens
from tests.support.byte_models import byte_policy

LENGTHS = (5, 12, 9)


def batch(side: str, width: int = 14) -> TokenBatch:
    """Three rows of the same tokens, padded left or right; every second token from the third on is sampled."""
    generator = torch.Generator().manual_seed(1)
    shape = (len(LENGTHS), width)
    ids, mask, turns = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool), torch.full(shape, -1)
    for row, length in enumerate(LENGTHS):
        place = slice(0, length) if side == "right" else slice(width - length, width)
        ids[row, place] = torch.randint(1, 390, (length,), generator=generator)
        mask[row, place] = True
        turns[row, place] = torch.tensor([0 if i >= 2 and i % 2 == 0 else -1 for i in range(length)])
    return TokenBatch(ids, mask, turns, torch.zeros(shape))


def plain(policy: Policy, tokens: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """One unpadded row at a time, all logits at once."""
    logprobs, entropy = torch.zeros(tokens.token_ids.shape), torch.zeros(tokens.token_ids.shape)
    for row in range(len(tokens.token_ids)):
        real = tokens.attention_mask[row]
        ids = tokens.token_ids[row][real]
        log_p = policy.model(ids[None]).logits[0, :-1].log_softmax(-1)
        chosen = torch.cat([torch.zeros(1), log_p.gather(1, ids[1:, None])[:, 0]])
        spread = torch.cat([torch.zeros(1), -(log_p.exp() * log_p).sum(-1)])
        sampled = tokens.action_mask[row][real]
        logprobs[row, real], entropy[row, real] = torch.where(sampled, chosen, 0.0), torch.where(sampled, spread, 0.0)
    return logprobs, entropy


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("block_bytes", [1, 5000, 2**25])
def test_logprobs_and_entropies_equal_the_plain_pass(
    kind: str, side: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", block_bytes)
    policy, tokens = byte_policy(kind), batch(side)
    expected_logprobs, expected_entropy = plain(policy, tokens)
    with torch.no_grad():
        scores = policy.token_logprobs(tokens)
    torch.testing.assert_close(scores.logprobs, expected_logprobs, atol=1e-5, rtol=0)
    torch.testing.assert_close(scores.entropy, expected_entropy, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kept_bytes", [1, 2**25])
@pytest.mark.parametrize("entropy", ["skip", "value", "gradient"])
def test_gradients_equal_the_plain_pass(kept_bytes: int, entropy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", 5000)
    monkeypatch.setitem(token_scores._KEPT_BYTES, "cpu", kept_bytes)
    policy, tokens = byte_policy("qwen2"), batch("right")
    weights = torch.arange(1.0, 1 + tokens.token_ids.numel()).view(tokens.token_ids.shape)
    names, parameters = zip(*policy.model.named_parameters(), strict=True)

    scores = policy.token_logprobs(tokens, entropy=entropy)
    assert scores.entropy.requires_grad == (entropy == "gradient")
    assert bool(scores.entropy.any()) == (entropy != "skip")
    total = (scores.logprobs * weights).sum() + (
        0.3 * (scores.entropy * weights).sum() if entropy == "gradient" else 0.0
    )
    logprobs, h = plain(policy, tokens)
    expected = (logprobs * weights).sum() + (0.3 * (h * weights).sum() if entropy == "gradient" else 0.0)
    for name, got, wanted in zip(
        names, torch.autograd.grad(total, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(got, wanted, atol=2e-5 * float(wanted.abs().max()), rtol=1e-4, msg=name)


@pytest.mark.parametrize("kept_bytes", [1, 2**25])
def test_only_entropy_or_only_logprob_may_be_used(kept_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", 4 * 4 * 3)  # of 4 tokens, blocks of 3 words: 3, 3, 3 and 2
    monkeypatch.setitem(token_scores._KEPT_BYTES, "cpu", kept_bytes)
    torch.manual_seed(0)
    head = torch.nn.Linear(6, 11, bias=True)  # a bias is part of the head
    hidden, target = torch.randn(4, 6, requires_grad=True), torch.tensor([0, 3, 10, 3])
    scores = score_tokens(head, hidden, target, "gradient")
    log_p = F.log_softmax(head(hidden), dim=1)
    inputs = (hidden, head.weight, head.bias)
    for got, wanted in (
        (scores.logprobs, log_p.gather(1, target[:, None])[:, 0]),
        (scores.entropy, -(log_p.exp() * log_p).sum(1)),
    ):
        torch.testing.assert_close(got, wanted)
        ours, plain_ones = (torch.autograd.grad(value.sum(), inputs, retain_graph=True) for value in (got, wanted))
        for one, other in zip(ours, plain_ones, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kept_bytes", [1, 2**25])
def test_gradients_of_rounded_passes_stay_near_the_exact_ones(kept_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", 4 * 5 * 50)  # of 5 tokens, fifty words
    monkeypatch.setitem(token_scores._KEPT_BYTES, "cpu", kept_bytes)
    torch.manual_seed(0)
    head, hidden, target = (
        torch.nn.Linear(16, 300),
        torch.randn(5, 16, requires_grad=True),
        torch.tensor([0, 49, 50, 299, 120]),
    )
    inputs = (hidden, head.weight, head.bias)
    log_p = F.log_softmax(head(hidden), dim=1)
    exact = torch.autograd.grad((log_p.gather(1, target[:, None])[:, 0] - (log_p.exp() * log_p).sum(1)).sum(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        scores = score_tokens(head, hidden, target, "gradient")
    rounded = torch.autograd.grad((scores.logprobs + scores.entropy).sum(), inputs)
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.01


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_blocks_of_the_vocabulary_whose_logits_differ_by_hundreds(
    order: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", 4 * 3 * 10)  # of 3 tokens, ten words
    # the largest logit changes in every block, in the last one only, or here and there
    logits = torch.linspace(-5 * scale, 5 * scale, 95)
    logits = {
        "rising": logits,
        "falling": logits.flip(0),
        "shuffled": logits[torch.randperm(95, generator=torch.Generator().manual_seed(0))],
    }[order]
    head = torch.nn.Linear(1, 95, bias=False)
    head.weight.data = logits[:, None]
    hidden, target = torch.tensor([[1.0], [-1.0], [0.5]]), torch.tensor([0, 94, 50])
    log_p = (hidden.double() @ logits.double()[None]).log_softmax(dim=1)
    with torch.no_grad():
        scores = score_tokens(head, hidden, target, "value")
    torch.testing.assert_close(scores.logprobs.double(), log_p.gather(1, target[:, None])[:, 0], atol=2e-5, rtol=1e-6)
    torch.testing.assert_close(scores.entropy.double(), -(log_p.exp() * log_p).sum(1), atol=2e-5, rtol=1e-6)


def test_passes_without_gradient_keep_nothing_and_second_derivatives_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    monkeypatch.setitem(token_scores._BLOCK_BYTES, "cpu", 4 * 2 * 5)  # of 2 tokens, five words
    logits = token_scores._logits

    def spied(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, words: slice) -> torch.Tensor:
        sizes.append(words.stop - words.start)
        return logits(rows, weight, bias, words)

    monkeypatch.setattr(token_scores, "_logits", spied)
    head, hidden, target = (
        torch.nn.Linear(4, 20).requires_grad_(False),
        torch.randn(2, 4, requires_grad=True),
        torch.tensor([3, 19]),
    )
    with torch.no_grad():
        score_tokens(head, hidden, target, "gradient")
    assert sizes == [5, 5, 5, 5]
    sizes.clear()
    scores = score_tokens(head, hidden, target, "gradient")
    assert sizes == [20]
    (gradient,) = torch.autograd.grad((scores.logprobs + scores.entropy).sum(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(gradient.square().sum(), hidden)


def test_the_model_attention_is_back_after_a_pass() -> None:
    policy = byte_policy()
    before = policy.model.config._attn_implementation
    policy.token_logprobs(batch("right"))
    assert policy.model.config._attn_implementation == before


def test_a_row_may_not_begin_with_a_sampled_token() -> None:
    tokens = batch("left")
    turns = tokens.turn.clone()
    turns[2, 5] = 0  # first token of a row of 9 in a width of 14
    with pytest.raises(ValueError, match="row 2 begins with a policy token"):
        byte_policy().token_logprobs(
            TokenBatch(tokens.token_ids, tokens.attention_mask, turns, tokens.sampler_logprobs)
        )


def test_a_row_longer_than_the_context_is_an_error() -> None:
    with pytest.raises(ValueError, match="got 12 tokens, expected at most the model's context of 11"):
        byte_policy(max_tokens=11).token_logprobs(batch("right"))


def test_save_and_load_keep_the_policy(tmp_path: Path) -> None:
    policy = byte_policy()
    policy.save(tmp_path / "model")
    again = Policy.load(tmp_path / "model")
    assert again.weights_hash() == policy.weights_hash()
    assert again.weights_hash() != byte_policy(seed=1).weights_hash()
    assert again.tokenizer("São Paulo")["input_ids"] == policy.tokenizer("São Paulo")["input_ids"]
    assert again.pad_token_id == policy.pad_token_id == 0


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_passes_in_bfloat16_round_and_weights_do_not(kind: str, tmp_path: Path) -> None:
    policy = byte_policy(kind)
    policy.save(tmp_path / "model")
    mixed = Policy.load(tmp_path / "model", dtype=torch.bfloat16)
    assert (mixed.dtype, mixed.model.dtype, policy.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert mixed.weights_hash() == policy.weights_hash()
    exact, rounded = (each.token_logprobs(batch("right")) for each in (policy, mixed))
    exact, rounded = (each.token_logprobs(batch("right")) for each in (policy, mixed))
    assert rounded.logprobs.dtype == torch.float32
    difference = (exact.logprobs - rounded.logprobs).detach().abs()[batch("right").action_mask]
    assert 1e-4 < float(difference.max()) < 0.1  # rounded, and not by more than eight bits would
    rounded.logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None and weight.grad.dtype == torch.float32 for weight in mixed.model.parameters())


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder at"):
        Policy.load(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        Policy.load(tmp_path)
    byte_policy().save(tmp_path)
    for file in tmp_path.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ConfigError, match="no tokenizer"):
        Policy.load(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights"):
        Policy.load(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        Policy.load(tmp_path)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


NORM, UP = "model.norm.weight", "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda weights: weights.pop(NORM), rf"lacks weights that the model needs: {NORM};"),
        (lambda weights: [weights.pop(name) for name in list(weights)[:9]], r"lacks weights .* and 6 more;"),
        (
            lambda weights: weights.update({UP: torch.zeros(3, 5)}),
            rf"of other shapes than its config.json says: {UP} \(3, 5\), not \(64, 32\);",
        ),
        (
            lambda weights: weights.update({NORM: weights[NORM].long()}),
            rf"weights that are not floating point: {NORM} I64;",
        ),
        (lambda weights: weights[NORM].fill_(torch.nan), rf"weights that are NaN or infinite: {NORM};"),
        (lambda weights: weights[UP][0].fill_(torch.inf), rf"weights that are NaN or infinite: {UP};"),
    ],
)
def test_weights_that_are_not_whole_are_named(tmp_path: Path, change: Callable[..., object], told: str) -> None:
    byte_policy().save(tmp_path)
    Policy.load(tmp_path)
    change_weights(tmp_path, change)
    with pytest.raises(ConfigError, match=told):
        Policy.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", '{"model_type": "unheard-of"}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "x"),
        ("model.safetensors", "x"),
        ("model.safetensors", ""),
    ],
)
def test_damaged_files_of_a_model_folder_are_one_sentence(tmp_path: Path, name: str, content: str) -> None:
    byte_policy().save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=r"policy: .* cannot be read \(.*\), expected a whole model folder"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_in_a_model_folder_is_never_run(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stdin says: transformers would ask there."""
    byte_policy().save(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    settings = json.loads((tmp_path / file).read_text())
    named = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model", "AutoTokenizer": ["evil.T", "evil.T"]}
    (tmp_path / file).write_text(json.dumps(settings | {"auto_map": named, "model_type": "evil"}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with contextlib.suppress(ConfigError):
        Policy.load(tmp_path)
    assert not (tmp_path / "ran").exists()
    if file == "config.json":
        with pytest.raises(ConfigError, match="brings model code of its own, which is never run"):
            Policy.load(tmp_path)


@pytest.mark.parametrize(("named", "more"), [(None, set()), (7, {7}), ([5, 7], {5, 7}), ([0], set())])
def test_end_tokens_are_those_of_tokenizer_and_generation_config(
    tmp_path: Path, named: int | list[int] | None, more: set[int]
) -> None:
    policy = byte_policy()
    policy.save(tmp_path)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": named}))
    assert Policy.load(tmp_path).end_token_ids == {policy.tokenizer.eos_token_id} | more


def test_models_that_change_their_logits_are_refused() -> None:
    policy = byte_policy(seed=5)
    policy.model.config.logits_scaling = 8.0
    try:
        with pytest.raises(ValueError, match="logits_scaling"):
            Policy(policy.model, policy.tokenizer)
    finally:
        policy.model.config.logits_scaling = 1.0


def test_sliding_windows_are_refused() -> None:
    policy = byte_policy("qwen2", seed=6)
    for layer in policy.model.model.layers:
        layer.self_attn.sliding_window = 8
    with pytest.raises(ValueError, match="attends to 8 tokens only, got rows of 12"):
        policy.token_logprobs(batch("right"))


def test_micro_batches_hold_similar_rows_within_the_budget() -> None:
    # sorted 9 7 4 4 2 1 1; budget 9: one of 9, one of 7, two of 4 (8); then without any padding, since a pass costs
    # nothing (9 // 16)
    assert micro_batches([4, 9, 1, 4, 2, 7, 1], 9) == [[1], [5], [0, 3], [4], [2, 6]]
    assert micro_batches([5, 6], 1) == [[1], [0]]
    assert micro_batches([], 10) == []


def test_rows_are_padded_rather_than_given_a_pass_of_their_own_while_that_is_cheaper() -> None:
    # budget 1600, so a pass counts 100: two rows of 60 beside five of 100 cost 80 of padding, two of 40 would cost 120
    assert micro_batches([100] * 5 + [60] * 2, 1600) == [[0, 1, 2, 3, 4, 5, 6]]
    assert micro_batches([100] * 5 + [40] * 2, 1600) == [[0, 1, 2, 3, 4], [5, 6]]


def test_rows_of_a_group_stay_together_where_they_fit() -> None:
    # group 0 has rows of 9, 3 and 2 (27 places), group 1 of 8 and 8, group 2 of 30 and 30, which fit into none together
    lengths, groups = [9, 8, 3, 8, 30, 2, 30], [0, 1, 0, 1, 2, 0, 2]
    assert micro_batches(lengths, 32, groups) == [[4], [6], [0, 2, 5], [1, 3]]
    assert micro_batches(lengths, 50, groups) == [[4], [6], [0, 2, 5, 1, 3]]  # 45 places
    assert micro_batches(lengths, 60, groups)[0] == [4, 6]
    assert micro_batches([5] * 6, 15, [0, 1, 0, 1, 0, 1]) == [[0, 2, 4], [1, 3, 5]]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=12), st.integers(1, 300))
def test_groups_are_cut_within_the_budget_and_only_where_they_must(rows: list[tuple[int, int]], budget: int) -> None:
    lengths, groups = [length for length, _ in rows], [group for _, group in rows]
    found = micro_batches(lengths, budget, groups)
    assert sorted(row for batch in found for row in batch) == list(range(len(rows)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget
    for group in set(groups):
        members = [row for row, own in enumerate(groups) if own == group]
        fits = len(members) * max(lengths[row] for row in members) <= budget
        assert not fits or any(set(members) <= set(batch) for batch in found)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(1, 200))
def test_no_other_cut_of_the_sorted_rows_costs_less(lengths: list[int], budget: int) -> None:
    def cost(batches: Sequence[Sequence[int]]) -> float:
        places = [len(rows) * max(lengths[row] for row in rows) for rows in batches]
        too_large = any(size > budget and len(rows) > 1 for size, rows in zip(places, batches, strict=True))
        return math.inf if too_large else sum(places) + len(batches) * (budget // 16)

    found = micro_batches(lengths, budget)
    order = [row for rows in found for row in rows]
    assert sorted(order) == list(range(len(lengths)))
    assert all(lengths[row] >= lengths[following] for row, following in pairwise(order))
    ends = range(1, len(order))
    cuts = [(0, *chosen, len(order)) for count in range(len(order)) for chosen in combinations(ends, count)]
    assert cost(found) == min(cost([order[start:end] for start, end in pairwise(cut)]) for cut in cuts)


def test_models_with_other_logits_than_output_matrix_times_hidden_state_are_refused() -> None:
    policy = deepcopy(byte_policy())
    policy.model.config.logit_scale = 0.5
    with pytest.raises(ValueError, match=r"LlamaForCausalLM sets \['logit_scale'\], expected plain logits"):
        Policy(policy.model, policy.tokenizer)
    policy = deepcopy(byte_policy())
    policy.model.set_output_embeddings(torch.nn.Sequential(policy.model.get_output_embeddings()))
    with pytest.raises(ValueError, match=r"the output layer of LlamaForCausalLM is Sequential, expected nn\.Linear"):
        Policy(policy.model, policy.tokenizer)
