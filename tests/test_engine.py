"""The transformers engine against plain forward passes without any cache."""

import numpy as np
import pytest
import torch

from a2tgpo.engines.base import Sample, Sampling
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.policy import Policy
from tests.tiny_models import WORDS, tiny_policy, word_tokenizer

STOP = ("</search>", "</answer>")


def plain_sample(policy: Policy, prompt: list[int], sampling: Sampling, seed: int) -> Sample:
    """The slow and obvious engine: one whole forward pass per token, one row at a time."""
    uniform = np.random.Generator(np.random.Philox(seed)).random(sampling.max_tokens)
    stops = Stops(policy.tokenizer, sampling.stop)
    ids, logprobs = list(prompt), []
    for step in range(sampling.max_tokens):
        with torch.no_grad():
            logits = policy.model(torch.tensor([ids])).logits[0, -1].float()
        logp = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
        cumulative = logp.double().exp().cumsum(0)
        token = int(logp.argmax()) if sampling.temperature == 0 else int((cumulative > uniform[step] * float(cumulative[-1])).nonzero()[0])
        ids.append(token)
        logprobs.append(float(logp[token]))
        if stops.completed(ids[len(prompt) :]):
            return Sample(tuple(ids[len(prompt) :]), tuple(logprobs), True)
    return Sample(tuple(ids[len(prompt) :]), tuple(logprobs), False)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_many_turns_equal_plain_generation(kind: str, temperature: float) -> None:
    policy = tiny_policy(kind)
    engine = TransformersEngine(policy)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, len(WORDS), size=rng.integers(1, 12)).tolist() for _ in range(9)]
    prompts[4] = list(prompts[3])  # two rows with equal prompts
    sampling = Sampling(6, STOP, temperature)
    stopped = 0
    for turn in range(4):
        seeds = [100 * turn + row for row in range(len(prompts))]
        samples = engine.generate(prompts, sampling, seeds)
        for prompt, seed, sample in zip(prompts, seeds, samples, strict=True):
            expected = plain_sample(policy, prompt, sampling, seed)
            assert sample.token_ids == expected.token_ids
            assert sample.complete == expected.complete
            assert sample.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
            stopped += sample.complete
        shown = [rng.integers(3, len(WORDS), size=rng.integers(0, 7)).tolist() for _ in prompts]
        prompts = [[*prompt, *sample.token_ids, *ids] for prompt, sample, ids in zip(prompts, samples, shown, strict=True)]
        prompts = [prompt for row, prompt in enumerate(prompts) if (row + turn) % 3]  # some episodes end
    assert stopped > 0


def test_cache_is_really_kept() -> None:
    policy = tiny_policy()
    engine = TransformersEngine(policy)
    sampling = Sampling(3, STOP)
    prompt = list(range(3, 30))
    first = engine.generate([prompt], sampling, [0])[0]
    fed: list[int] = []
    decoder = policy.model.get_decoder()
    handle = decoder.register_forward_pre_hook(lambda _module, _args, kwargs: fed.append(kwargs["input_ids"].shape[1]), with_kwargs=True)
    engine.generate([[*prompt, *first.token_ids, 5, 6]], sampling, [1])
    handle.remove()
    assert fed[0] == 3  # the last sampled token, which never was an input, and the two new ones


def test_new_weights_make_the_cache_stale() -> None:
    policy = tiny_policy()
    engine = TransformersEngine(policy)
    sampling, prompt = Sampling(4, STOP), list(range(3, 20))
    engine.generate([prompt], sampling, [0])
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.3)
    engine.load_weights(policy, version=1)
    assert engine.generate([prompt], sampling, [0])[0].logprobs == pytest.approx(plain_sample(policy, prompt, sampling, 0).logprobs, abs=1e-5)


def test_result_does_not_depend_on_companions_or_order() -> None:
    policy = tiny_policy()
    rng = np.random.default_rng(1)
    prompts = [rng.integers(3, len(WORDS), size=5 + row).tolist() for row in range(8)]
    sampling, seeds = Sampling(8, STOP), list(range(8))
    together = TransformersEngine(policy).generate(prompts, sampling, seeds)
    backwards = TransformersEngine(policy).generate(prompts[::-1], sampling, seeds[::-1])[::-1]
    alone = [TransformersEngine(policy).generate([prompt], sampling, [seed])[0] for prompt, seed in zip(prompts, seeds, strict=True)]
    assert [sample.token_ids for sample in together] == [sample.token_ids for sample in backwards] == [sample.token_ids for sample in alone]


def test_sampling_follows_the_distribution() -> None:
    policy = tiny_policy(seed=3)
    prompt, count = [10, 11, 12], 4000
    samples = TransformersEngine(policy).generate([prompt] * count, Sampling(1, ()), list(range(count)))
    with torch.no_grad():
        expected = torch.softmax(policy.model(torch.tensor([prompt])).logits[0, -1], dim=-1).numpy()
    share = np.bincount([sample.token_ids[0] for sample in samples], minlength=len(WORDS)) / count
    # standard error of a share is at most 0.5/√4000 = 0.008
    assert np.abs(share - expected).max() < 0.03


def test_stop_strings_on_token_level() -> None:
    tokenizer = word_tokenizer()
    stops = Stops(tokenizer, STOP)
    ids = {word: index for index, word in enumerate(WORDS)}
    assert stops.completed([ids["w1"], ids["</search>"]])
    assert stops.completed([ids["<eos>"]])
    assert not stops.completed([ids["<search>"], ids["w1"]])
    spread = Stops(tokenizer, ("w1 w2",))  # a stop string of two tokens
    assert spread.completed([ids["w0"], ids["w1"], ids["w2"]])
    assert not spread.completed([ids["w1"], ids["w0"], ids["w2"]])
