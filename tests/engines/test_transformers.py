"""The transformers engine against plain forward passes without any cache."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from a2tgpo.batch import TokenBatch
from a2tgpo.engines.base import Sample, Sampling, generate
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.engines.transformers.cache import PositionCache
from a2tgpo.engines.transformers.forward import ModelForward, is_lean
from a2tgpo.engines.transformers.llama import LeanForward
from a2tgpo.errors import EngineError
from a2tgpo.policy import Policy
from tests.support.tiny_models import WORDS, tiny_policy, word_tokenizer

STOP = ("</search>", "</answer>")


class Unknown(LlamaForCausalLM):  # type: ignore[misc]
    """A type that the engine knows nothing about."""


KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama with biases": (
        LlamaForCausalLM,
        LlamaConfig,
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama, no shared heads": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4}),
    "llama, stretched": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16, "tie_word_embeddings": True}),
    "unknown": (Unknown, LlamaConfig, {}),
}


def policy_of(kind: str) -> Policy:
    """Random weights so large that distributions are far from uniform; no bias is zero, no norm's weight one."""
    model, config, settings = KINDS[kind]
    torch.manual_seed(0)
    sizes = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
    }
    made = model(
        config(**sizes | {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.25} | settings)
    )
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() == 1:
                weight.copy_(torch.randn_like(weight) / 4 + ("norm" in name))
    return Policy(made.eval(), word_tokenizer())


def plain_sample(policy: Policy, prompt: list[int], sampling: Sampling, seed: int) -> Sample:
    """The slow and obvious engine: one whole forward pass per token, one row at a time."""
    uniform = np.random.Generator(np.random.Philox(seed)).random(sampling.max_tokens)
    stops = Stops(policy.tokenizer, sampling.stop, policy.end_token_ids)
    ids, logprobs = list(prompt), []
    for step in range(sampling.max_tokens):
        with torch.no_grad():
            logits = policy.model(torch.tensor([ids])).logits[0, -1].float()
        logp = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
        cumulative = logp.double().exp().cumsum(0)
        token = (
            int(logp.argmax())
            if sampling.temperature == 0
            else int((cumulative > uniform[step] * float(cumulative[-1])).nonzero()[0])
        )
        ids.append(token)
        logprobs.append(float(logp[token]))
        if stops.completed(ids[len(prompt) :]):
            return Sample(tuple(ids[len(prompt) :]), tuple(logprobs), True)
    return Sample(tuple(ids[len(prompt) :]), tuple(logprobs), False)


@pytest.mark.parametrize(
    ("kind", "temperature"), [*((kind, 1.0) for kind in KINDS), ("llama", 0.0), ("llama", 0.7), ("unknown", 0.0)]
)
def test_many_turns_equal_plain_generation(kind: str, temperature: float) -> None:
    policy = policy_of(kind)
    engine = TransformersEngine(policy)
    rng = np.random.default_rng(0)
    prompts = {row: rng.integers(3, len(WORDS), size=rng.integers(1, 12)).tolist() for row in range(9)}
    prompts[4] = list(prompts[3])  # two rows with equal prompts
    sampling = Sampling(6, STOP, temperature)
    stopped = 0
    for turn in range(4):
        for row, prompt in reversed(prompts.items()):
            engine.submit(row, prompt, sampling, 100 * turn + row)
        samples = engine.collect()
        assert [row for row, _ in samples] == sorted(prompts)
        for row, sample in samples:
            expected = plain_sample(policy, prompts[row], sampling, 100 * turn + row)
            assert sample.token_ids == expected.token_ids
            assert sample.complete == expected.complete
            assert sample.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
            stopped += sample.complete
            prompts[row] += [*sample.token_ids, *rng.integers(3, len(WORDS), size=rng.integers(0, 7)).tolist()]
        prompts = {row: prompt for row, prompt in prompts.items() if (row + turn) % 3}  # some episodes end
        prompts[9 + turn] = rng.integers(3, len(WORDS), size=20).tolist()  # another begins
        prompts[min(prompts)][0] += 1 - 2 * (prompts[min(prompts)][0] > 20)  # a known key, another text
    assert stopped > 0


@pytest.mark.parametrize("kind", ["llama", "unknown"])
def test_rows_that_end_early_are_computed_no_further(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, rng = policy_of(kind), np.random.default_rng(0)
    engine, sampling = TransformersEngine(policy), Sampling(20, STOP)
    swaps: list[int] = []
    swap = PositionCache.swap

    def counted(self: PositionCache, rows: list[int], others: list[int]) -> None:
        swaps.append(len(rows))
        swap(self, rows, others)

    monkeypatch.setattr(PositionCache, "swap", counted)
    prompts = [rng.integers(3, len(WORDS), size=rng.integers(1, 9)).tolist() for _ in range(24)]
    for turn in range(3):
        seeds = [100 * turn + row for row in range(len(prompts))]
        samples = generate(engine, prompts, sampling, seeds)
        for prompt, seed, sample in zip(prompts, seeds, samples, strict=True):
            expected = plain_sample(policy, prompt, sampling, seed)
            assert (sample.token_ids, sample.complete) == (expected.token_ids, expected.complete)
            assert sample.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
        prompts = [[*prompt, *sample.token_ids, turn + 5] for prompt, sample in zip(prompts, samples, strict=True)]
    assert sum(swaps) > 3  # or it was not tested


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unknown"])
def test_lean_forward_equals_the_models_own(kind: str) -> None:
    model = policy_of(kind).model
    assert is_lean(model)
    results: list[list[torch.Tensor]] = []
    for kind_of_forward in (LeanForward, ModelForward):
        torch.manual_seed(0)
        cache = PositionCache(2, rows=5, capacity=40)
        forward = kind_of_forward(model, cache)
        with torch.inference_mode():
            starts = torch.zeros(5, dtype=torch.long)
            hidden = []
            for width in (12, 3):
                lengths = torch.tensor([width, 1, width - 1, 2, width])
                real = torch.arange(width) < lengths[:, None]
                ids = torch.randint(len(WORDS), (5, width)) * real
                hidden.append(
                    forward.read(ids, starts[:, None] + torch.arange(width), lengths - 1, int((starts + lengths).max()))
                )
                starts = starts + lengths
            step = forward.steps(starts - 1, int(starts.max()), 6)
            hidden += [step(torch.randint(len(WORDS), (5,))) for _ in range(4)]
            cache.swap([0], [4])
            step = forward.steps(starts[[4, 1, 2, 3]] + 3, int(starts.max()) + 4, 2)
            hidden += [step(torch.randint(len(WORDS), (4,))) for _ in range(2)]
        results.append(hidden)
    for lean, own in zip(*results, strict=True):
        assert torch.allclose(lean, own, atol=1e-5)
        assert float(own.abs().max()) > 0.5


def test_lean_forward_in_half_precision_is_as_good_as_the_models_own() -> None:
    model = policy_of("qwen3").model
    ids = torch.randint(len(WORDS), (16, 30), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        exact = model.get_decoder()(input_ids=ids).last_hidden_state
        model.bfloat16()
        errors = []
        for kind_of_forward in (LeanForward, ModelForward):
            forward = kind_of_forward(model, PositionCache(2, rows=16, capacity=30))
            hidden = [forward.read(ids[:, :20], torch.arange(20).expand(16, -1), torch.full((16,), 19), 20)]
            step = forward.steps(torch.full((16,), 19), 20, 10)
            hidden += [step(token_ids) for token_ids in ids[:, 20:].T]
            errors.append(float((torch.stack(hidden, dim=1).float() - exact[:, 19:]).square().mean().sqrt()))
    assert 0 < errors[0] < 1.2 * errors[1]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "unknown"])
def test_mixed_precision_samples_as_the_policy_scores(kind: str) -> None:
    exact = policy_of(kind)
    policy = Policy(exact.model, exact.tokenizer, passes_in=torch.bfloat16)
    engine, sampling = TransformersEngine(policy), Sampling(6, STOP)
    prompts = [[3 + row, 5, 9, 12 + row] for row in range(16)]
    differences = []
    for turn in range(2):
        samples = generate(engine, prompts, sampling, [100 * turn + row for row in range(16)])
        for prompt, sample in zip(prompts, samples, strict=True):
            row = torch.tensor([[*prompt, *sample.token_ids]])
            turns = torch.full_like(row, -1)
            turns[0, len(prompt) :] = 0
            batch = TokenBatch(row, torch.ones_like(row, dtype=torch.bool), turns, torch.zeros(row.shape))
            with torch.no_grad():
                expected = policy.token_logprobs(batch, entropy="skip").logprobs[0, len(prompt) :]
            differences += (torch.tensor(sample.logprobs) - expected).abs().tolist()
        prompts = [[*prompt, *sample.token_ids, 7] for prompt, sample in zip(prompts, samples, strict=True)]
    assert 0 < float(np.mean(differences)) < 0.05  # rounding; other weights or a wrong cache are off by a nat


def test_lean_forward_is_for_models_that_it_was_made_for() -> None:
    assert not is_lean(policy_of("unknown").model)
    stretching = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    small = {
        "vocab_size": 9,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    assert is_lean(LlamaForCausalLM(LlamaConfig(**small)))
    assert not is_lean(LlamaForCausalLM(LlamaConfig(**small, **stretching)))
    assert not is_lean(LlamaForCausalLM(LlamaConfig(**small, hidden_act="gelu")))
    assert not is_lean(
        Qwen2ForCausalLM(Qwen2Config(**small, use_sliding_window=True, sliding_window=4, max_window_layers=0))
    )
    adapted = LlamaForCausalLM(LlamaConfig(**small))

    class Adapter(torch.nn.Linear):
        pass

    adapted.model.layers[1].mlp.up_proj = Adapter(8, 8)
    assert not is_lean(adapted)


def test_cache_is_really_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    engine = TransformersEngine(policy)
    sampling = Sampling(3, STOP)
    prompt = list(range(3, 30))
    first = generate(engine, [prompt], sampling, [0])[0]
    fed: list[int] = []
    read = LeanForward.read

    def counted(self: LeanForward, token_ids: torch.Tensor, *more: Any) -> torch.Tensor:
        fed.append(token_ids.shape[1])
        return read(self, token_ids, *more)

    monkeypatch.setattr(LeanForward, "read", counted)
    generate(engine, [[*prompt, *first.token_ids, 5, 6]], sampling, [1])
    assert fed == [3]  # the last sampled token, which never was an input, and the two new ones


def test_the_prompt_of_a_group_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of("qwen2")
    engine, sampling = TransformersEngine(policy), Sampling(4, STOP)
    first, second = [5, 6, 7], [9, 8, 7, 6]
    fed: list[tuple[int, ...]] = []
    read = LeanForward.read

    def counted(self: LeanForward, token_ids: torch.Tensor, *more: Any) -> torch.Tensor:
        fed.append(tuple(token_ids.shape))
        return read(self, token_ids, *more)

    monkeypatch.setattr(LeanForward, "read", counted)
    prompts = [first, second, first, second, first]
    samples = generate(engine, prompts, sampling, list(range(5)))
    assert fed == [(2, 4)]
    assert [sample.token_ids for sample in samples] == [
        plain_sample(policy, prompt, sampling, seed).token_ids for seed, prompt in enumerate(prompts)
    ]


def test_a_call_that_broke_off_leaves_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    engine, sampling = TransformersEngine(policy), Sampling(1, STOP)
    prompts = [list(range(3, 20)), list(range(4, 9))]
    first = generate(engine, prompts, sampling, [0, 0])[0]
    longer = [*prompts[0], *first.token_ids, 5, 6, 7]
    with monkeypatch.context() as broken:
        broken.setattr(LeanForward, "steps", None)
        with pytest.raises(TypeError):
            generate(engine, [longer], sampling, [1])
    assert generate(engine, [longer], sampling, [1])[0].logprobs == pytest.approx(
        plain_sample(policy, longer, sampling, 1).logprobs, abs=1e-5
    )


def test_rows_that_are_sampled_differently_are_collected_one_kind_at_a_time() -> None:
    policy = tiny_policy()
    engine, kinds = TransformersEngine(policy), [Sampling(4, STOP), Sampling(2, (), 0.0)]
    for key in range(6):
        engine.submit(key, [3 + key, 5, 9], kinds[key % 2], key)
    assert [key for key, _ in engine.collect()] == [0, 2, 4]
    greedy = engine.collect()
    assert [key for key, _ in greedy] == [1, 3, 5]
    assert greedy[1][1].token_ids == plain_sample(policy, [6, 5, 9], kinds[1], 3).token_ids
    with pytest.raises(EngineError, match="while none is in flight"):
        engine.collect()


def test_rows_of_different_limits_are_sampled_together() -> None:
    """Each as if it were alone, over several turns: a limit ends its own row only."""
    policy = tiny_policy()
    engine, prompts = TransformersEngine(policy), [[3, 5, 9], [7, 8], [4, 4, 4, 4], [11, 5], [12]]
    for turn in range(3):
        limits = [1 + (3 * key + 2 * turn) % 11 for key in range(5)]
        for key, prompt in enumerate(prompts):
            engine.submit(key, prompt, Sampling(limits[key], STOP), 10 * turn + key)
        collected = engine.collect()
        assert [key for key, _ in collected] == [0, 1, 2, 3, 4]
        for key, sample in collected:
            alone = plain_sample(policy, prompts[key], Sampling(limits[key], STOP), 10 * turn + key)
            assert (sample.token_ids, sample.complete) == (alone.token_ids, alone.complete)
            assert sample.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
            prompts[key] = [*prompts[key], *sample.token_ids, 20 + turn]


def test_weights_are_not_changed_under_a_row_in_flight() -> None:
    policy = tiny_policy()
    engine = TransformersEngine(policy)
    engine.submit(0, [3, 5, 9], Sampling(4, STOP), 0)
    with pytest.raises(EngineError, match="while 1 rows are in flight"):
        engine.load_weights(policy, 1)


def test_new_weights_make_the_cache_stale() -> None:
    policy = tiny_policy()
    engine = TransformersEngine(policy)
    sampling, prompt = Sampling(4, STOP), list(range(3, 20))
    generate(engine, [prompt], sampling, [0])
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.3)
    engine.load_weights(policy, version=1)
    assert generate(engine, [prompt], sampling, [0])[0].logprobs == pytest.approx(
        plain_sample(policy, prompt, sampling, 0).logprobs, abs=1e-5
    )


def test_result_does_not_depend_on_companions_or_order() -> None:
    policy = tiny_policy()
    rng = np.random.default_rng(1)
    prompts = [rng.integers(3, len(WORDS), size=5 + row).tolist() for row in range(8)]
    sampling, seeds = Sampling(8, STOP), list(range(8))
    together = generate(TransformersEngine(policy), prompts, sampling, seeds)
    backwards = generate(TransformersEngine(policy), prompts[::-1], sampling, seeds[::-1])[::-1]
    alone = [
        generate(TransformersEngine(policy), [prompt], sampling, [seed])[0]
        for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    assert (
        [sample.token_ids for sample in together]
        == [sample.token_ids for sample in backwards]
        == [sample.token_ids for sample in alone]
    )


def test_sampling_follows_the_distribution() -> None:
    policy = tiny_policy(seed=3)
    prompt, count = [10, 11, 12], 4000
    samples = generate(TransformersEngine(policy), [prompt] * count, Sampling(1, ()), list(range(count)))
    with torch.no_grad():
        expected = torch.softmax(policy.model(torch.tensor([prompt])).logits[0, -1], dim=-1).numpy()
    share = np.bincount([sample.token_ids[0] for sample in samples], minlength=len(WORDS)) / count
    # standard error of a share is at most 0.5/√4000 = 0.008
    assert np.abs(share - expected).max() < 0.03


def test_every_end_token_of_the_model_ends_a_turn() -> None:
    policy = tiny_policy()
    prompt, sampling = list(range(3, 20)), Sampling(12, ())
    runs = generate(TransformersEngine(policy), [prompt] * 30, sampling, list(range(30)))
    seed, free = next((seed, run) for seed, run in enumerate(runs) if len(run.token_ids) == 12)
    policy.model.generation_config.eos_token_id = [free.token_ids[9], free.token_ids[5]]
    ended = generate(TransformersEngine(policy), [prompt], sampling, [seed])[0]
    first = next(place for place, token in enumerate(free.token_ids) if token in policy.end_token_ids)
    assert first <= 5
    assert ended.complete
    assert ended.token_ids == free.token_ids[: first + 1]


def test_stop_strings_on_token_level() -> None:
    tokenizer = word_tokenizer()
    stops = Stops(tokenizer, STOP, [tokenizer.eos_token_id])
    ids = {word: index for index, word in enumerate(WORDS)}
    assert stops.completed([ids["w1"], ids["</search>"]])
    assert stops.completed([ids["<eos>"]])
    assert not stops.completed([ids["<search>"], ids["w1"]])
    spread = Stops(tokenizer, ("w1 w2",), [tokenizer.eos_token_id])  # a stop string of two tokens
    assert spread.completed([ids["w0"], ids["w1"], ids["w2"]])
    assert not spread.completed([ids["w1"], ids["w0"], ids["w2"]])
