"""The policy as the environment's scorer: the value of the gold answer during a live episode."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from a2tgpo.batch import TokenBatch
from a2tgpo.chat import Chat
from a2tgpo.envs.scorers import Transcript
from a2tgpo.policy import Policy
from a2tgpo.probe_pass import pass_with_probes
from a2tgpo.probes import Aliases, Measure, Scaffold, build_probe, gold_values


@dataclass(frozen=True, slots=True)
class PolicyScorer:
    """Callable `(transcript, gold answers) -> value` for the `scorer` slot of an environment.

    Its values are those of `a2tgpo.information_gain.measure` on the episode that a rollout with the same `chat` records, as long as the policy's texts encode
    to the tokens that it sampled (a transcript is text; the recorded episode keeps the tokens themselves). One forward pass over the transcript per call.
    """

    policy: Policy
    chat: Chat
    scaffold: Scaffold
    aliases: Aliases = "first"
    measure: Measure = "logprob"

    def __call__(self, transcript: Transcript, answers: Sequence[str]) -> float:
        """Value of the gold answer, in nats or as a probability; NaN (missing) when the transcript with the answer exceeds the model's context.

        Raises:
            ValueError: if no gold answer can be scored.
            FloatingPointError: if the value is not finite.
        """
        probe = build_probe(self.policy.tokenizer, self.scaffold, answers, self.aliases, transcript.question)
        token_ids = self._token_ids(transcript)
        if len(token_ids) + probe.reach > self.policy.max_tokens:
            return math.nan
        row = torch.tensor([token_ids], device=self.policy.device)
        batch = TokenBatch(row, torch.ones_like(row, dtype=torch.bool), torch.full_like(row, -1), torch.zeros(row.shape, device=row.device))
        with torch.no_grad():
            result = pass_with_probes(self.policy, batch, [[len(token_ids)]], [probe], entropy="skip")
        value = float(gold_values(result.gold_logprobs[0], self.aliases, self.measure)[0])
        if not math.isfinite(value):
            raise FloatingPointError(f"policy scorer: the gold answer's value is {value} for the question {transcript.question!r}, expected a finite number")
        return value

    def _token_ids(self, transcript: Transcript) -> list[int]:
        token_ids = self.chat.prompt_ids(transcript.prompt)
        for exchange in transcript.exchanges:
            action_ids = self.policy.tokenizer(exchange.action, add_special_tokens=False)["input_ids"]
            token_ids += [*action_ids, *self.chat.observation_ids(exchange.observation, action_ids)]
        return token_ids
