"""TRL: our environment rolled out inside its GRPOTrainer, and our credit through its loss.

    from a2tgpo.integrations.trl import CreditTrainer, arguments_of

    algorithm = A2TGPO()
    args = GRPOConfig(output_dir, num_generations=8, **arguments_of(algorithm.loss))
    CreditTrainer(policy, algorithm, env, args, max_action_tokens=16, max_episode_tokens=256).train()

TRL calls `rollout_func` for the episodes of a batch and carries `advantages` of shape [episode token]; the trainer
below replaces them by the credit of each token's turn, and makes the clip range a tensor of the same shape. The
surrogate, the clip and the aggregation are TRL's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from a2tgpo.algorithms import Algorithm, LossSpec
from a2tgpo.algorithms.ratios import span_mean
from a2tgpo.batch import spread
from a2tgpo.engines.base import Engine
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError, MissingExtraError
from a2tgpo.information_gain import Scaffold, Scoring, score_episodes
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Rollout, Task, check_played
from a2tgpo.training.score import credit_of

try:
    from accelerate.utils import gather_object
    from datasets import Dataset
    from trl import GRPOTrainer
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"a2tgpo.integrations.trl: needs {error.name}, which is not installed; run: pip install 'a2tgpo[trl]'"
    ) from error

LOSS_TYPES: Mapping[str, str] = {"seq-mean-token-mean": "grpo", "token-mean": "dapo", "seq-mean-token-sum": "luspo"}
"""Our aggregation → TRL's loss type that means the same."""


def arguments_of(loss: LossSpec) -> dict[str, Any]:
    """The arguments of `GRPOConfig` that stand for an algorithm's loss. Clip widths are per turn and reach the loss
    through `CreditTrainer`.

    Raises:
        ConfigError: for a part that TRL's loss does not have, naming it.
    """
    missing = {
        "surrogate": loss.surrogate != "clip",
        "aggregation": loss.aggregation not in LOSS_TYPES,
        "kl": loss.kl != "none",
        "entropy_coefficient": loss.entropy_coefficient != 0,
        "importance_cap": loss.importance_cap is not None,
        "merge_equal_turns": loss.merge_equal_turns,
    }
    for name, absent in missing.items():
        if absent:
            raise ConfigError(
                f"loss.{name}: got {getattr(loss, name)!r}, which TRL's loss cannot express; train with `a2tgpo train`"
                " or override this field"
            )
    return {
        "epsilon": loss.clip_low,
        "epsilon_high": loss.clip_high,
        "delta": loss.dual_clip,
        "loss_type": LOSS_TYPES[loss.aggregation],
        # turn and sequence ratios come as token ratios of the same value and gradient
        "importance_sampling_level": "token",
        "beta": 0.0,
        "entropy_coef": 0.0,
    }


def question_dataset(env: SearchQAVectorEnv) -> Any:
    """The questions as TRL's data set. The prompt column holds ids: the environment writes the prompts, and the same
    text may be asked with other golds.
    """
    return Dataset.from_list([{"prompt": question.id} for question in env.questions])


class CreditTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """TRL's GRPOTrainer with episodes of our environment and the credit of one of our algorithms.

    Args:
        policy: model and tokenizer; the model is trained in place.
        algorithm: any whose loss `arguments_of` accepts.
        env: a vector environment with `AutoresetMode.DISABLED`.
        args: a `GRPOConfig` made with `arguments_of(algorithm.loss)`.
        max_action_tokens: sampled tokens per turn.
        max_episode_tokens: tokens per episode, prompt and observations included.
        max_failed: largest share of a batch's episodes that a search engine may break, also when they are played again;
            they are part of TRL's batch, without any weight.
        engine: generates for the policy; by default with its own transformers model.
        others: for `GRPOTrainer`; the data set is the environment's questions unless one with a column `prompt` of
            question ids is given.

    Raises:
        ConfigError: if `args` was not made for the algorithm's loss, or asks for something that would bypass it.
    """

    epsilon_low: Any
    epsilon_high: Any

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        env: SearchQAVectorEnv,
        args: Any,
        *,
        max_action_tokens: int,
        max_episode_tokens: int,
        max_failed: float = 0.5,
        engine: Engine | None = None,
        **others: Any,
    ) -> None:
        _check_arguments(args, algorithm.loss)
        self.policy = policy
        self.algorithm = algorithm
        self.max_failed = max_failed
        self.scoring = Scoring(Scaffold(*env.protocol.scaffold))
        self.rollout = Rollout(
            env,
            engine or TransformersEngine(policy),
            Chat(
                policy.tokenizer,
                tool_role=env.protocol.observation_role == "tool",
                end_token_ids=policy.end_token_ids,
                markup=f"{' '.join(env.protocol.tags)} {env.rules.instructions or ''}",
            ),
            max_action_tokens=max_action_tokens,
            max_episode_tokens=min(max_episode_tokens, policy.max_tokens),
        )
        self._scores: Any = None
        super().__init__(
            model=policy.model,
            reward_funcs=outcome,
            args=args,
            train_dataset=others.pop("train_dataset", None) or question_dataset(env),
            processing_class=policy.tokenizer,
            rollout_func=self._roll_out,
            **others,
        )

    def _roll_out(self, prompts: Sequence[str], _trainer: object) -> dict[str, Any]:
        """Episodes for question ids, as TRL wants them: tokens, log-probabilities, and a mask of what the policy
        wrote.
        """
        training = self.policy.model.training
        first = (
            self.state.global_step * self.accelerator.num_processes + self.accelerator.process_index
        ) * 100_000 + self.args.seed
        self.rollout.engine.load_weights(self.policy, version=self.state.global_step)
        episodes = self.rollout(
            [Task(0, question, first + place) for place, question in enumerate(prompts)], self.args.temperature
        )
        check_played(episodes, self.max_failed, "a batch", "then train again from the last checkpoint")
        if self.algorithm.needs_information_gain:
            episodes = list(score_episodes(self.policy, episodes, self.scoring, entropy="skip").episodes)
        self.policy.model.train(training)
        starts = [len(episode.turns[0].context_ids) for episode in episodes]
        return {
            "prompt_ids": [list(episode.turns[0].context_ids) for episode in episodes],
            "completion_ids": [
                list(episode.token_ids[start:]) for episode, start in zip(episodes, starts, strict=True)
            ],
            "logprobs": [_token_logprobs(episode)[start:] for episode, start in zip(episodes, starts, strict=True)],
            "env_mask": [
                [int(flag) for flag in episode.action_mask[start:]]
                for episode, start in zip(episodes, starts, strict=True)
            ],
            "episode": episodes,
        }

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch with our credit in the place of its advantages."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        mine = [row["episode"] for row in inputs]
        everyone = gather_object(mine) if self.accelerator.num_processes > 1 else mine
        size = self.num_generations if self.model.training else self.num_generations_eval
        grouped = [replace(episode, group=place // size) for place, episode in enumerate(everyone)]
        credit = credit_of(self.algorithm, grouped)
        first = self.accelerator.process_index * len(mine)
        advantage, clip_scale, weight = (
            getattr(credit, name)[first : first + len(mine)].to(self.accelerator.device)
            for name in ("advantage", "clip_scale", "weight")
        )
        turn = _completion_turns(mine, batch["completion_ids"].shape[1]).to(self.accelerator.device)
        batch["turn"] = turn
        batch["advantages"] = spread(advantage * weight, turn)
        batch["clip_scale"] = spread(clip_scale, turn)
        batch["tool_mask"] = batch["tool_mask"] * (spread(weight, turn) != 0)
        batch["num_items_in_batch"] = self.accelerator.gather(
            (batch["completion_mask"] * batch["tool_mask"]).sum()
        ).sum()
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """TRL's loss with a clip range per token and, for turn and sequence ratios, log-probabilities that make its
        token ratio that one.
        """
        loss = self.algorithm.loss
        widths = self.epsilon_low, self.epsilon_high
        try:
            self.epsilon_low, self.epsilon_high = (
                width * inputs["clip_scale"] for width in (loss.clip_low, loss.clip_high)
            )
            if loss.ratio != "token":
                inputs = inputs | {"old_per_token_logps": self._span_anchor(model, inputs)}
            return super()._compute_loss(model, inputs)
        finally:
            self.epsilon_low, self.epsilon_high = widths
            self._scores = None

    def _span_anchor(self, model: Any, inputs: Mapping[str, Any]) -> Float[Tensor, "episode token"]:
        """log π_θ − mean log-ratio of the token's span, without gradient: its ratio to log π_θ is the span's ratio,
        with the token's own gradient.
        """
        ids, attention = (
            torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], dim=1) for name in ("ids", "mask")
        )
        self._scores = super()._get_per_token_logps_and_entropies(
            model,
            ids,
            attention,
            inputs["completion_ids"].shape[1],
            compute_entropy=True,
            compute_aux_loss=self.aux_loss_enabled,
        )
        logprobs: Tensor = self._scores[0].detach()
        old = inputs.get("old_per_token_logps")
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        span = inputs["turn"] if self.algorithm.loss.ratio == "turn" else torch.zeros_like(inputs["turn"])
        return logprobs - span_mean(torch.zeros_like(logprobs) if old is None else logprobs - old, span, mask)

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        """The pass that `_span_anchor` has made for this loss, where there is one."""
        return (
            self._scores
            if self._scores is not None
            else super()._get_per_token_logps_and_entropies(*arguments, **named)
        )


def outcome(prompts: Sequence[str], completions: Sequence[str], episode: Sequence[Episode], **_: object) -> list[float]:
    """TRL's reward: the episode's outcome. It is logged; the credit is the algorithm's."""
    return [one.outcome for one in episode]


def _check_arguments(args: Any, loss: LossSpec) -> None:
    for name, wanted in arguments_of(loss).items():
        if (got := getattr(args, name)) != wanted:
            hint = "make it with GRPOConfig(…, **arguments_of(algorithm.loss))"
            raise ConfigError(f"args.{name}: got {got!r}, expected {wanted!r} for this algorithm's loss; {hint}")
    if args.use_vllm or getattr(args, "use_liger_kernel", False) or args.mask_truncated_completions:
        raise ConfigError(
            "args: got use_vllm, use_liger_kernel or mask_truncated_completions, expected none of them: they bypass the"
            " episodes or the loss"
        )


def _token_logprobs(episode: Episode) -> list[float]:
    """The sampler's log-probability of every token of the episode; 0 where the policy sampled none."""
    sampled = iter([value for turn in episode.turns for value in turn.action_logprobs])
    return [next(sampled) if flag else 0.0 for flag in episode.action_mask]


def _completion_turns(episodes: Sequence[Episode], width: int) -> Int[Tensor, "episode token"]:
    """Turn that sampled each token behind the prompt; -1 elsewhere."""
    turn = torch.full((len(episodes), width), -1, dtype=torch.long)
    for row, episode in enumerate(episodes):
        index = episode.turn_index[len(episode.turns[0].context_ids) :]
        turn[row, : len(index)] = torch.tensor(index)
    return turn
