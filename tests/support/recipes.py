"""A recipe whose whole run takes seconds."""

from a2tgpo.config import (
    EnvironmentSettings,
    Recipe,
    RolloutSettings,
    TrainingSettings,
    UpdateSettings,
    WarmStartSettings,
)


def small_recipe() -> Recipe:
    return Recipe(
        name="kill",
        algorithm="a2tgpo",
        environment=EnvironmentSettings(worlds=2, max_turns=3, max_searches=2),
        warm_start=WarmStartSettings(
            target_success=0.0,
            max_steps=100,
            evaluate_every=50,
            learning_rate=1e-2,
            evaluate_questions=8,
            demonstrations=400,
        ),
        rollout=RolloutSettings(questions=4, group_size=3, max_action_tokens=6, max_episode_tokens=200),
        update=UpdateSettings(mini_batches=2, learning_rate=1e-3),
        training=TrainingSettings(
            steps=5, evaluate_every=2, evaluate_questions=8, log_episodes_every=2, checkpoint_every=2
        ),
    )
