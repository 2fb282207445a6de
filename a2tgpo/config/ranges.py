"""Which numbers a recipe may hold."""

from typing import Final

LEAST: Final[dict[str, int]] = {
    "seed": 0,
    "environment.worlds": 1,
    "environment.world_seed": 0,
    "environment.top_k": 1,
    "environment.max_searches": 0,
    "environment.max_turns": 1,
    "model.threads": 1,
    "vllm.max_num_seqs": 1,
    "warm_start.seed": 0,
    "warm_start.max_steps": 1,
    "warm_start.batch_size": 1,
    "warm_start.demonstrations": 1,
    "warm_start.evaluate_every": 1,
    "warm_start.evaluate_questions": 1,
    "rollout.questions": 1,
    "rollout.group_size": 2,
    "rollout.max_action_tokens": 1,
    "rollout.max_episode_tokens": 1,
    "rollout.replays": 0,
    "update.warmup_steps": 0,
    "update.mini_batches": 1,
    "update.epochs": 1,
    "update.micro_batch_tokens": 1,
    "update.max_skipped_updates": 0,
    "training.steps": 1,
    "training.evaluate_every": 1,
    "training.evaluate_questions": 1,
    "training.log_episodes_every": 1,
    "training.checkpoint_every": 1,
    "training.keep_checkpoints": 1,
    "study.workers": 1,
}
"""Setting → its least value."""

POSITIVE: Final[tuple[str, ...]] = (
    "vllm.kv_cache_gib",
    "warm_start.learning_rate",
    "rollout.temperature",
    "rollout.max_failed",
    "update.learning_rate",
    "update.max_grad_norm",
)
"""Settings that must be above 0. Training samples, so its temperature is one of them; evaluation is greedy by itself.
"""

HINTS: Final[dict[str, str]] = {
    "rollout.group_size": "; a group of one carries no comparison, so every advantage would be 0",
    "training.keep_checkpoints": "; without a checkpoint a run cannot be continued",
}
"""Setting → why."""
