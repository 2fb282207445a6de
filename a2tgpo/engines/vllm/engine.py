"""Generation with vLLM: a second copy of the weights, renewed after every update, and many rows in flight that need not
wait for each other.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from a2tgpo.config import VLLMSettings
from a2tgpo.engines.base import Sample, Sampling, nothing_in_flight
from a2tgpo.engines.stops import Stops
from a2tgpo.engines.vllm.start import explained, start
from a2tgpo.engines.vllm.weights import check, hand_over
from a2tgpo.errors import ConfigError, EngineError
from a2tgpo.policy import Policy


class VLLMEngine:
    """Engine on vLLM. One per process: vLLM keeps its state in globals."""

    def __init__(self, policy: Policy, settings: VLLMSettings, max_tokens: int) -> None:
        """Start vLLM and give it the policy's weights.

        Args:
            max_tokens: longest row, prompt included.

        Raises:
            ConfigError: if vLLM is missing, too old, or does not start with this model and these settings.
            EngineError: if it does not take the weights.
        """
        self._max_tokens = max_tokens
        self._llm = start(policy, settings, max_tokens)
        self._shares_device = policy.device == torch.device("cuda", 0)  # where vLLM is
        self._asleep = False
        self._names = itertools.count()
        self._flying: dict[str, int] = {}
        self._stops: dict[tuple[str, ...], Stops] = {}
        self.load_weights(policy, 0)

    def load_weights(self, policy: Policy, version: int) -> None:
        """Take the policy's weights, drop every cache of older ones, and verify the result.

        Raises:
            EngineError: if a row is still in flight, or the engine does not end up with the policy's weights.
        """
        nothing_in_flight(len(self._flying))
        self._policy, self._salt = policy, salt_of(version)
        with explained("taking new weights"):
            if self._asleep:
                self._llm.wake_up(["weights"])
            hand_over(self._llm, policy)
            emptied = self._llm.reset_prefix_cache()
            if self._asleep:
                self._llm.wake_up(["kv_cache"])
                self._asleep = False
        if not emptied:
            raise EngineError("engine: vLLM kept its prefix cache after new weights, expected it to be emptied")
        check(self._llm, self.score, policy, self._max_tokens - 1, version)

    def sleep(self) -> None:
        """Drop weights and KV cache until `load_weights`, where the policy uses the same GPU. Elsewhere nobody needs
        the memory.
        """
        if self._shares_device and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def close(self) -> None:
        """Shut vLLM down, so that another engine can be started in this process."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()

    def submit(self, key: int, prompt: Sequence[int], sampling: Sampling, seed: int) -> None:
        """Put a row into flight.

        Raises:
            ConfigError: if prompt and sample together may be longer than a row of this engine.
        """
        if len(prompt) + sampling.max_tokens > self._max_tokens:
            raise ConfigError(
                f"engine: got a prompt of {len(prompt)} tokens with up to {sampling.max_tokens} sampled ones, expected"
                f" at most {self._max_tokens} together; raise rollout.max_episode_tokens or shorten the prompt"
            )
        if sampling.stop not in self._stops:
            self._stops[sampling.stop] = Stops(self._policy.tokenizer, sampling.stop, self._policy.end_token_ids)
        self._flying[self._add(prompt, _sampling_params(self._stops[sampling.stop], sampling, seed))] = key

    def collect(self) -> list[tuple[int, Sample]]:
        """The rows that are finished, at least one.

        Raises:
            EngineError: if nothing is in flight, or vLLM breaks.
        """
        finished = []
        for output in self._next_finished():
            row = output.outputs[0]
            logprobs = tuple(
                float(chosen[token].logprob) for token, chosen in zip(row.token_ids, row.logprobs, strict=True)
            )
            finished.append(
                (
                    self._flying.pop(output.request_id),
                    Sample(tuple(row.token_ids), logprobs, row.finish_reason == "stop"),
                )
            )
        return finished

    def score(self, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[float]]:
        """Per row, the log-probabilities of its tokens from index `start` (at least 1) on, each given all before it;
        temperature 1.

        A row's known beginning is read from the prefix cache. vLLM gives no score for what it did not compute, so a row
        whose scores are incomplete is scored once more without the cache.

        Raises:
            ConfigError: if a row leaves no room for the one token that vLLM must sample.
            EngineError: if vLLM breaks, or leaves scores out even then.
        """
        found = self._prompt_logprobs(rows, starts, reuse=True)
        again = [index for index, scores in enumerate(found) if None in scores]
        if again:
            complete = self._prompt_logprobs(
                [rows[index] for index in again], [starts[index] for index in again], reuse=False
            )
            found = [complete[again.index(index)] if index in again else scores for index, scores in enumerate(found)]
        if any(None in scores for scores in found):
            raise EngineError(
                "engine: vLLM left out log-probabilities of a prompt that it computed in full; this version of vLLM"
                " cannot score"
            )
        return [[float(score) for score in scores if score is not None] for scores in found]

    def _prompt_logprobs(
        self, rows: Sequence[Sequence[int]], starts: Sequence[int], *, reuse: bool
    ) -> list[list[float | None]]:
        from vllm import SamplingParams

        if any(len(row) >= self._max_tokens for row in rows):
            raise ConfigError(
                f"engine: got {max(map(len, rows))} tokens to score, expected at most {self._max_tokens - 1}; raise"
                " rollout.max_episode_tokens"
            )
        params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False, skip_reading_prefix_cache=not reuse
        )
        names = [self._add(row, params) for row in rows]
        scored: dict[str, list[Any]] = {}
        while len(scored) < len(rows):
            scored |= {output.request_id: output.prompt_logprobs for output in self._next_finished()}
        return [
            [
                None if given is None or token not in given else given[token].logprob
                for token, given in zip(row[start:], scored[name][start:], strict=True)
            ]
            for row, start, name in zip(rows, starts, names, strict=True)
        ]

    def _add(self, prompt: Sequence[int], params: Any) -> str:
        name = str(next(self._names))
        with explained("taking a request"):
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": list(prompt), "cache_salt": self._salt}, params)
        return name

    def _next_finished(self) -> list[Any]:
        """Step until a request is finished."""
        while self._llm.llm_engine.has_unfinished_requests():
            with explained("generating"):
                outputs = [output for output in self._llm.llm_engine.step() if output.finished]
            if broken := [output for output in outputs if output.outputs[0].finish_reason not in ("stop", "length")]:
                raise EngineError(
                    f"engine: vLLM ended a row with {broken[0].outputs[0].finish_reason!r}, expected 'stop' or 'length'"
                )
            if outputs:
                return outputs
        raise EngineError("engine: asked for finished rows while none is in flight; submit some first")


def salt_of(version: int) -> str:
    """What the prefix cache of these weights is marked with."""
    return f"weights {version}"


def _sampling_params(stops: Stops, sampling: Sampling, seed: int) -> Any:
    """Everything that could change the distribution is set here; the model's own defaults never count."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=1.0,
        top_k=0,
        seed=seed % 2**63,
        stop_token_ids=sorted(stops.token_ids),
        stop=list(stops.texts),
        include_stop_str_in_output=True,
        ignore_eos=True,  # the end token is one of the stop tokens
        detokenize=bool(stops.texts),
        skip_special_tokens=False,
        logprobs=0,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
