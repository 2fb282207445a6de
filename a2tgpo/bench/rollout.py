"""How fast episodes are played: `a2tgpo bench rollout`.

The baseline is the usual way: `generate` of transformers on the whole prompt of every turn, padded to one length, with
no cache between turns. Same model, same questions, same environment, same run; vLLM takes part where it is installed
and asked for.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium.vector import AutoresetMode
from transformers import GenerationConfig

from a2tgpo import config
from a2tgpo.engines.base import Engine, Request, Sample, Sampling, in_flight
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.engines.vllm import VLLMEngine
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.envs.registration import make_almanac_vector
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.start.tiny import tiny_policy
from a2tgpo.training.rollout import Rollout, Task

BASELINE, OURS, VLLM = "transformers generate", "a2tgpo transformers engine", "a2tgpo vLLM engine"
CONTEXT = 1024


class GenerateEngine:
    """The baseline: nothing is kept between calls."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._waiting: list[Request] = []

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """See `Engine.submit`. The seed is not used: `generate` has one stream of numbers for all rows."""
        self._waiting.append(Request(key, tuple(prompt), sampling, seed))

    def collect(self) -> list[tuple[int, Sample]]:
        """Pad on the left, generate, cut at the first stop token."""
        waiting, self._waiting = in_flight(self._waiting), []
        prompts, sampling = [row.prompt for row in waiting], waiting[0].sampling
        tokenizer, pad = self.policy.tokenizer, self.policy.pad_token_id
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        stops = {tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(sampling.stop))}
        settings = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            eos_token_id=sorted(stops),
            pad_token_id=pad,
        )
        with torch.no_grad():
            rows = self.policy.model.generate(ids, attention_mask=mask, generation_config=settings)[:, width:].tolist()
        return [(row.key, _cut(ids, stops)) for row, ids in zip(waiting, rows, strict=True)]

    def load_weights(self, policy: Policy, version: int) -> None:
        self.policy = policy

    def sleep(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""


def _cut(row: list[int], stops: set[int]) -> Sample:
    end = next((index + 1 for index, token in enumerate(row) if token in stops), len(row))
    return Sample(tuple(row[:end]), (0.0,) * end, row[end - 1] in stops)


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One way of playing."""

    name: str
    episodes_per_minute: float
    tokens_per_second: float
    """Sampled tokens."""
    turns: float
    """Mean turns per episode."""


def bench_rollout(
    model: Path | None = None,
    episodes: int = 64,
    turns: int = 4,
    max_action_tokens: int = 16,
    repeats: int = 8,
    *,
    vllm: bool = False,
) -> list[RolloutRow]:
    """Play the same questions with the baseline and with our engines; the best of `repeats` of each, taken in turns.

    Args:
        model: a folder; by default an untrained policy of the quickstart's shape, which seldom ends an action, so most
            turns have their full length.
        episodes: played side by side.
        turns: of every episode, at most.
        vllm: play with vLLM too. The default policy then has two heads instead of four, for all engines, since vLLM has
            none so narrow on a CPU.

    Raises:
        ConfigError: for more episodes than there are questions.
    """
    torch.set_num_threads(1)
    policy = (
        tiny_policy(protocol_of("tags_brief").tags, heads=2 if vllm else 4, context=CONTEXT)
        if model is None
        else Policy.load(model)
    )
    env = make_almanac_vector(
        num_envs=episodes,
        fictional=True,
        worlds=5,
        max_turns=turns,
        max_searches=turns,
        top_k=2,
        protocol="tags_brief",
        scorer=None,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    if episodes > len(env.questions):
        raise ConfigError(f"episodes: got {episodes}, expected at most {len(env.questions)}, the bench's questions")
    engines: dict[str, Engine] = {BASELINE: GenerateEngine(policy), OURS: TransformersEngine(policy)}
    if vllm:
        engines[VLLM] = VLLMEngine(policy, config.VLLMSettings(), CONTEXT)
    best: dict[str, tuple[float, list[Episode]]] = {}
    for _ in range(repeats):
        for name, engine in engines.items():
            seconds, played = _play(env, engine, policy, episodes, max_action_tokens)
            if name not in best or seconds < best[name][0]:
                best[name] = seconds, played
    for engine in engines.values():
        engine.close()
    return [_row(name, seconds, played) for name, (seconds, played) in best.items()]


def _play(
    env: SearchQAVectorEnv, engine: Engine, policy: Policy, episodes: int, max_action_tokens: int
) -> tuple[float, list[Episode]]:
    rollout = Rollout(
        env, engine, Chat(policy.tokenizer), max_action_tokens=max_action_tokens, max_episode_tokens=CONTEXT
    )
    tasks = [Task(row, question.id, row) for row, question in enumerate(env.questions[:episodes])]
    engine.load_weights(policy, 0)
    started = time.perf_counter()
    played = rollout(tasks)
    return time.perf_counter() - started, played


def _row(name: str, seconds: float, played: Sequence[Episode]) -> RolloutRow:
    tokens = sum(sum(episode.action_mask) for episode in played)
    return RolloutRow(
        name, 60 * len(played) / seconds, tokens / seconds, sum(episode.num_turns for episode in played) / len(played)
    )
