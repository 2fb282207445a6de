"""The vLLM engine against plain forward passes of transformers; run by `make test-vllm`."""

import importlib.metadata
import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import a2tgpo.engines.vllm.engine
from a2tgpo.config import ModelSettings, Recipe, VLLMSettings
from a2tgpo.engines import Sampling, engine_of, generate
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.engines.vllm import VLLMEngine
from a2tgpo.engines.vllm.weights import hand_over
from a2tgpo.envs.scoring.gold_value import Exchange, Transcript
from a2tgpo.errors import ConfigError, EngineError
from a2tgpo.information_gain import Scaffold, Scoring
from a2tgpo.information_gain.live import EngineScorer, PolicyScorer
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from tests.support.byte_models import byte_tokenizer
from tests.support.tiny_models import WORDS, tiny_policy
from tests.support.vllm_engine import MAX_TOKENS, needs_vllm, running, shake, wide_policy

pytestmark = needs_vllm
STOP = ("</search>", "</answer>")


def prompts_of(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, len(WORDS), size=rng.integers(1, longest + 1)).tolist() for _ in range(count)]


def logprobs_of(policy: Policy, row: list[int]) -> torch.Tensor:
    """[token] log-probability of each token but the first, one whole forward pass."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([row])).logits[0, :-1].float()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(row)[1:, None]).squeeze(1)


def largest_error(policy: Policy, engine: VLLMEngine, longest: int = 150) -> float:
    """Largest difference of a sampled or scored log-probability from the plain pass's."""
    prompts = prompts_of(12, longest)
    errors = []
    for prompt, sample in zip(prompts, generate(engine, prompts, Sampling(10, STOP), range(12)), strict=True):
        expected = logprobs_of(policy, [*prompt, *sample.token_ids])[len(prompt) - 1 :]
        errors.append(float((torch.tensor(sample.logprobs) - expected).abs().max()))
    rows = prompts_of(6, 380, seed=1)
    for row, scores in zip(rows, engine.score(rows, [len(row) // 2 + 1 for row in rows]), strict=True):
        assert len(scores) == len(row) - len(row) // 2 - 1
        errors += (torch.tensor(scores) - logprobs_of(policy, row)[len(row) // 2 :]).abs().tolist()
    return max(errors)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_logprobs_equal_transformers_before_and_after_updates(kind: str, tied: bool) -> None:
    policy = wide_policy(kind, tied)
    with running(policy) as engine:
        errors = [largest_error(policy, engine)]
        for version in (1, 2, 3):
            shake(policy, version)
            engine.load_weights(policy, version)
            errors.append(largest_error(policy, engine))
    print(
        f"{kind}, tied {tied}: largest |Δ log-probability| before and after three updates:"
        f" {', '.join(f'{error:.1e}' for error in errors)}"
    )
    assert max(errors) < 2e-5


def test_without_an_update_the_difference_would_be_seen() -> None:
    """What the test above would find if the weights stayed the old ones."""
    policy = wide_policy()
    with running(policy) as engine:
        shake(policy, 1)
        assert largest_error(policy, engine) > 0.1


@pytest.mark.parametrize("tied", [False, True])
def test_greedy_equals_our_engine_turn_by_turn(tied: bool) -> None:
    policy = wide_policy(tied=tied)
    ours, prompts, sampling = TransformersEngine(policy), prompts_of(9, 12), Sampling(8, STOP, temperature=0.0)
    with running(policy) as engine:
        for _ in range(3):
            expected = generate(ours, prompts, sampling, [0] * 9)
            samples = generate(engine, prompts, sampling, [0] * 9)
            assert [(sample.token_ids, sample.complete) for sample in samples] == [
                (sample.token_ids, sample.complete) for sample in expected
            ]
            for sample, other in zip(samples, expected, strict=True):
                # under temperature 1, also when greedy
                assert sample.logprobs == pytest.approx(other.logprobs, abs=2e-5)
            prompts = [[*prompt, *sample.token_ids, 9, 10] for prompt, sample in zip(prompts, samples, strict=True)]


def test_sampling() -> None:
    """Seeds decide, companions and order do not; the draws follow the distribution; they end where they should."""
    policy, sampling = wide_policy(), Sampling(6, STOP)
    prompts = prompts_of(30, 20)
    with running(policy) as engine:
        first = generate(engine, prompts, sampling, range(30))
        backwards = generate(engine, prompts[::-1], sampling, range(29, -1, -1))[::-1]
        alone = [generate(engine, [prompt], sampling, [seed])[0] for seed, prompt in enumerate(prompts[:5])]
        others = generate(engine, prompts, sampling, range(100, 130))
        many = generate(engine, [prompts[0]] * 4000, Sampling(1, STOP), range(2**70, 2**70 + 4000))
    assert [sample.token_ids for sample in first] == [sample.token_ids for sample in backwards]
    assert [sample.token_ids for sample in first[:5]] == [sample.token_ids for sample in alone]
    assert sum(one.token_ids != other.token_ids for one, other in zip(first, others, strict=True)) > 20
    stops = Stops(policy.tokenizer, STOP, policy.end_token_ids)
    for sample in first + others:
        ends = [index for index in range(len(sample.token_ids)) if stops.completed(sample.token_ids[: index + 1])]
        assert ends == ([len(sample.token_ids) - 1] if sample.complete else [])
        assert sample.complete or len(sample.token_ids) == 6
    assert {sample.complete for sample in first + others} == {True, False}
    with torch.no_grad():
        expected = policy.model(torch.tensor([prompts[0]])).logits[0, -1].softmax(-1).double()
    share = torch.bincount(torch.tensor([sample.token_ids[0] for sample in many]), minlength=len(WORDS)) / 4000
    # standard errors
    assert (
        float(
            ((share - expected).abs() / (expected * (1 - expected) / 4000).sqrt().clamp(min=1e-9))[
                expected > 0.005
            ].max()
        )
        < 4.5
    )


def test_stop_strings_of_several_tokens() -> None:
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    policy = Policy(LlamaForCausalLM(config).eval(), tokenizer)
    prompts = [tokenizer(f"{number} the company")["input_ids"] for number in range(60)]
    with running(policy) as engine:
        free = [
            tokenizer.decode(sample.token_ids[8:10])
            for sample in generate(engine, prompts, Sampling(24, ()), range(60))
        ]
        strings = tuple(
            text for text in free if text.isascii() and len(text) > 2 and len(tokenizer(text)["input_ids"]) > 1
        )[:10]
        samples = generate(engine, prompts, Sampling(24, strings), range(60))
    stops, complete = Stops(tokenizer, strings, policy.end_token_ids), 0
    for sample in samples:
        ends = [index for index in range(len(sample.token_ids)) if stops.completed(sample.token_ids[: index + 1])]
        assert ends == ([len(sample.token_ids) - 1] if sample.complete else [])
        complete += any(string in tokenizer.decode(sample.token_ids) for string in strings)
    assert len(strings) == 10
    assert complete >= 5


def test_the_prefix_cache_is_used_and_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same long prompt before and after an update; then the same with resets and salts switched off, where the old
    cache must show.
    """
    policy = wide_policy()
    row = np.random.default_rng(5).integers(3, len(WORDS), size=390).tolist()

    def error(engine: VLLMEngine) -> float:
        return float((torch.tensor(engine.score([row], [385])[0]) - logprobs_of(policy, row)[384:]).abs().max())

    with running(policy) as engine:
        assert error(engine) < 2e-5
        found = engine._prompt_logprobs([row], [1], reuse=True)[0]
        assert 0 < sum(score is None for score in found) <= 384  # read from the cache, so nobody scored it …
        # … and `score` notices
        assert torch.tensor(engine.score([row], [1])[0]).sub(logprobs_of(policy, row)).abs().max() < 2e-5
        for version in (1, 2):
            shake(policy, version)
            engine.load_weights(policy, version)
            assert error(engine) < 2e-5
        monkeypatch.setattr(type(engine._llm), "reset_prefix_cache", lambda self: True)
        monkeypatch.setattr(a2tgpo.engines.vllm.engine, "salt_of", lambda version: "always the same")
        engine.load_weights(policy, 3)
        assert error(engine) < 2e-5
        shake(policy, 3)
        with pytest.raises(
            EngineError,
            match=(
                r"engine: after loading version 4, vLLM's log-probabilities of a fixed sequence differ from the"
                r" policy's by"
            ),
        ):
            engine.load_weights(policy, 4)  # verification meets the stale cache too
        assert error(engine) > 1e-3


def test_the_order_on_a_shared_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleep, wake the weights, load, empty the prefix cache, wake the key–value cache, verify. A CPU has nothing to put
    to sleep: only the calls are seen.
    """
    policy, calls = wide_policy(), []
    with running(policy) as engine:
        for name in ("sleep", "wake_up", "collective_rpc", "reset_prefix_cache"):
            original = getattr(type(engine._llm), name)

            def recorded(self: Any, *args: Any, name: str = name, original: Any = original, **kwargs: Any) -> Any:
                calls.append((name, *(value for value in (*args, kwargs.get("level")) if value is not None)))
                return None if name in ("sleep", "wake_up") else original(self, *args, **kwargs)

            monkeypatch.setattr(type(engine._llm), name, recorded)
        engine.sleep()
        assert calls == []  # the policy is on the CPU
        engine._shares_device = True
        engine.sleep()
        engine.sleep()
        shake(policy, 1)
        engine.load_weights(policy, 1)
        order = [
            ("sleep", 2),
            ("wake_up", ["weights"]),
            ("collective_rpc", "reload_weights"),
            ("reset_prefix_cache",),
            ("wake_up", ["kv_cache"]),
        ]
        assert calls == order
        assert largest_error(policy, engine) < 2e-5
        engine.load_weights(policy, 2)
        assert calls[len(order) :] == [("collective_rpc", "reload_weights"), ("reset_prefix_cache",)]  # nobody sleeps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_do_not_arrive_are_an_error(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    policy = wide_policy()
    policy.model.to(dtype)
    with running(policy) as engine:
        monkeypatch.setattr(a2tgpo.engines.vllm.engine, "hand_over", lambda llm, policy: None)
        shake(policy, 1, 1e-3)
        with pytest.raises(
            EngineError,
            match=(
                r"engine: after loading version 7, vLLM's model.\S+ differs from the policy's, expected equal weights"
            ),
        ):
            engine.load_weights(policy, 7)


def test_an_output_matrix_that_stays_old_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM's packed copy of a tied one can on some CPUs: every weight that can be compared is new, what is
    multiplied with is not.
    """
    policy = wide_policy(tied=True)
    old = policy.model.lm_head.weight.detach().clone()

    def without_the_output_matrix(llm: Any, policy: Policy) -> None:
        hand_over(llm, policy)
        llm.apply_model(
            lambda model: setattr(
                model.lm_head, "cpu_linear", lambda x, weight, bias: torch.nn.functional.linear(x, old, bias)
            )
        )

    with running(policy) as engine:
        monkeypatch.setattr(a2tgpo.engines.vllm.engine, "hand_over", without_the_output_matrix)
        shake(policy, 1)
        with pytest.raises(
            EngineError, match=r"differ from the policy's by \S+ nats \(largest\), expected at most 0.001"
        ):
            engine.load_weights(policy, 1)


def test_bfloat16() -> None:
    policy = wide_policy()
    policy.model.to(torch.bfloat16)
    with running(policy) as engine:
        prompts = prompts_of(16, 100)
        samples = generate(engine, prompts, Sampling(20, ()), range(16))
    errors = torch.cat(
        [
            (torch.tensor(sample.logprobs) - logprobs_of(policy, [*prompt, *sample.token_ids])[len(prompt) - 1 :]).abs()
            for prompt, sample in zip(prompts, samples, strict=True)
        ]
    )
    print(f"bfloat16: |Δ log-probability| {float(errors.mean()):.3f} on average, {float(errors.max()):.3f} at most")
    assert float(errors.mean()) < 0.1


@pytest.mark.parametrize("aliases", ["first", "max", "mean"])
def test_gold_scores_equal_the_policys_own(aliases: Any) -> None:
    policy, scaffold = wide_policy(), Scaffold("<answer> ", " </answer>")
    chat, golds = Chat(policy.tokenizer), ("w1 w2 w3", "w4", "w1 w5")
    own = PolicyScorer(policy, chat, Scoring(scaffold, aliases=aliases))
    rng = np.random.default_rng(0)

    def words(count: int) -> str:
        return " ".join(f"w{number}" for number in rng.integers(0, 31, size=count))

    with running(policy) as engine:
        scorer = EngineScorer(engine, chat, Scoring(scaffold, aliases=aliases), MAX_TOKENS - 1)
        for length in (3, 40, 120, 128, 135):
            exchanges: tuple[Exchange, ...] = ()
            prompt = words(length)
            for _turn in range(4):
                transcript = Transcript("w1 w2", prompt, exchanges)
                assert scorer(transcript, golds) == pytest.approx(own(transcript, golds), abs=2e-5)
                exchanges = (
                    *exchanges,
                    Exchange(f"<search> {words(3)} </search>", f"<information> {words(40)} </information>"),
                )
        assert math.isnan(scorer(Transcript("w1", words(MAX_TOKENS), ()), golds))
        with pytest.raises(ValueError, match="'w1' has gold answers"):
            scorer(Transcript("w1", "w2", ()), (" ",))


def test_too_long() -> None:
    with running(wide_policy(), max_tokens=200) as engine:
        with pytest.raises(
            ValueError,
            match=r"engine: got a prompt of 195 tokens with up to 6 sampled ones, expected at most 200 together",
        ):
            generate(engine, [[5] * 195], Sampling(6, STOP), [0])
        with pytest.raises(ValueError, match=r"engine: got 200 tokens to score, expected at most 199"):
            engine.score([[5] * 200], [1])
        with pytest.raises(EngineError, match="asked for finished rows while none is in flight"):
            engine.collect()
        engine.submit(0, [5, 6], Sampling(6, STOP), 0)
        with pytest.raises(EngineError, match="got new weights while 1 rows are in flight"):
            engine.load_weights(engine._policy, 1)
        assert [key for key, _ in engine.collect()] == [0]


@pytest.mark.parametrize(
    ("settings", "policy", "message"),
    [
        (
            {},
            tiny_policy(),
            r"model.engine: got 'vllm' with attention heads of 8, expected one of \[32, .*model.options heads 2",
        ),
        (
            {"kv_cache_gib": 1e-5},
            wide_policy(),
            r"model.engine: vLLM does not start with LlamaForCausalLM in torch.float32: .*raise vllm.kv_cache_gib",
        ),
        (
            {"kv_cache_gib": 1e6},
            wide_policy(),
            r"model.engine: vLLM does not start .*lower vllm.kv_cache_gib or vllm.max_num_seqs, or free memory",
        ),
    ],
)
def test_it_does_not_start(settings: dict[str, Any], policy: Policy, message: str) -> None:
    with pytest.raises(ConfigError, match=message), running(policy, **settings):
        pass


def test_an_architecture_that_vllm_does_not_have() -> None:
    policy = wide_policy()
    policy.model.__class__ = type("UnheardOfForCausalLM", (LlamaForCausalLM,), {})
    with (
        pytest.raises(
            ConfigError,
            match=r"vLLM does not start with UnheardOfForCausalLM .*use model.engine 'transformers' for this model",
        ),
        running(policy),
    ):
        pass


def test_an_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.19.1" if name.startswith("vllm") else installed(name)
    )
    with pytest.raises(
        ConfigError, match=r"model.engine: got vLLM 0.19.1, expected at least 0.32; install that, or use 'transformers'"
    ):
        VLLMEngine(wide_policy(), VLLMSettings(), 100)


def test_the_recipe_chooses_it() -> None:
    engine = engine_of(Recipe(model=ModelSettings(engine="vllm"), vllm=VLLMSettings(kv_cache_gib=0.25)), wide_policy())
    assert isinstance(engine, VLLMEngine)
    engine.close()
