"""stable-baselines3 on the discrete wrapper: what a small network without a language model learns, with and without
information gain in its reward.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

import a2tgpo.envs
from a2tgpo.config import EnvironmentSettings
from a2tgpo.envs import Question, SearchQAEnv
from a2tgpo.envs.scoring.gold_value import EvidenceScorer
from a2tgpo.envs.wrappers import DiscreteSearch, GainReward, LimitEnds
from a2tgpo.errors import ConfigError, MissingExtraError

SIDE_BY_SIDE: Final = 16
"""Environments that an algorithm steps together."""
EVALUATIONS: Final = 8
"""Points of a curve, about, besides its start and end."""


@dataclass(frozen=True, slots=True)
class Sb3Algorithm:
    """An algorithm of stable-baselines3 with the settings that learn here."""

    module: str
    name: str
    options: Mapping[str, Any]
    masked: bool = False
    """Does it ask the environment for action masks?"""


_ON_POLICY: Final = {
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 6,
    "learning_rate": 1e-3,
    "gamma": 0.95,
    "ent_coef": 0.03,
}
ALGORITHMS: Final[dict[str, Sb3Algorithm]] = {
    "ppo": Sb3Algorithm("stable_baselines3", "PPO", _ON_POLICY),
    "maskable_ppo": Sb3Algorithm("sb3_contrib", "MaskablePPO", _ON_POLICY, masked=True),
    "a2c": Sb3Algorithm(
        "stable_baselines3", "A2C", {"n_steps": 16, "learning_rate": 7e-4, "gamma": 0.95, "ent_coef": 0.05}
    ),
    "dqn": Sb3Algorithm(
        "stable_baselines3",
        "DQN",
        {
            "learning_rate": 5e-4,
            "gamma": 0.95,
            "learning_starts": 2000,
            "train_freq": 1,
            "gradient_steps": 2,
            "batch_size": 128,
        }
        | {"target_update_interval": 1000, "exploration_fraction": 0.3, "buffer_size": 50_000},
    ),
}


@dataclass(frozen=True, slots=True)
class Sb3Settings:
    """One training run."""

    algorithm: str = "ppo"
    seed: int = 0
    steps: int = 100_000
    """Environment steps."""
    gain_weight: float = 0.0
    """Weight of a turn's information gain (nats) in the reward; 0 = outcome only."""
    evaluate_questions: int = 300


@dataclass(frozen=True, slots=True)
class Curve:
    """Held-out scores of a run, greedy: before training, about every `1/EVALUATIONS` of it, and at its end."""

    settings: Sb3Settings
    steps: tuple[int, ...]
    em: tuple[float, ...]
    searches: tuple[float, ...]


@dataclass(frozen=True)
class Worlds:
    """Questions with their search engines and scorer, made once and shared by all environments."""

    environment: EnvironmentSettings
    train: SearchQAEnv
    held_out: SearchQAEnv
    scorer: EvidenceScorer

    @staticmethod
    def of(environment: EnvironmentSettings) -> "Worlds":
        """The training and validation questions of a recipe's environment."""
        made, held_out = (
            _made(environment, split) for split in (environment.train_split, environment.validation_split)
        )
        return Worlds(environment, made, held_out, EvidenceScorer.of_corpora(made.pool.corpora()))

    def training(self, gain_weight: float) -> gym.Env[Any, Any]:
        """One environment to train in."""
        discrete = LimitEnds(DiscreteSearch(self._copy(self.train, scored=gain_weight != 0)))
        return GainReward(discrete, gain_weight) if gain_weight else discrete

    def evaluation(self) -> DiscreteSearch:
        """One environment over the held-out questions, rewarded by the outcome."""
        return DiscreteSearch(self._copy(self.held_out, scored=False))

    def _copy(self, env: SearchQAEnv, scored: bool) -> SearchQAEnv:
        scorer = self.scorer if scored else None
        return SearchQAEnv(env.questions, env.pool.retrievers, scorer=scorer, **self.environment.episode_arguments())


def train(settings: Sb3Settings, worlds: Worlds, tensorboard: Path | None = None, progress: bool = False) -> Curve:
    """Train one agent and score it on held-out questions along the way.

    Args:
        settings: algorithm, seed, length, reward.
        worlds: where it trains.
        tensorboard: folder for SB3's own TensorBoard log.
        progress: show SB3's own progress bar.

    Raises:
        MissingExtraError: naming the pip command, if stable-baselines3 (or sb3-contrib) is not installed.
        ConfigError: for an unknown algorithm.
    """
    spec = algorithm_of(settings.algorithm)
    agent = untrained_agent(
        settings.algorithm, lambda: worlds.training(settings.gain_weight), settings.seed, tensorboard
    )
    questions = worlds.held_out.questions[: settings.evaluate_questions]
    held_out = worlds.evaluation()
    points = [(0, *score(agent, held_out, questions, spec.masked))]

    def watch(variables: dict[str, Any], _globals: dict[str, Any]) -> bool:
        done = int(variables["self"].num_timesteps)
        if done - points[-1][0] >= settings.steps // EVALUATIONS:
            points.append((done, *score(agent, held_out, questions, spec.masked)))
        return True

    agent.learn(
        settings.steps,
        callback=watch,
        tb_log_name=f"{settings.algorithm}-gain{settings.gain_weight:g}-s{settings.seed}",
        progress_bar=progress,
    )
    if points[-1][0] != agent.num_timesteps:
        points.append((int(agent.num_timesteps), *score(agent, held_out, questions, spec.masked)))
    steps, em, searches = zip(*points, strict=True)
    return Curve(settings, steps, em, searches)


def untrained_agent(
    algorithm: str, make_env: Callable[[], gym.Env[Any, Any]], seed: int, tensorboard: Path | None = None
) -> Any:
    """An untrained agent of stable-baselines3 on `SIDE_BY_SIDE` environments, with the settings that learn here.

    Raises:
        MissingExtraError: naming the pip command, if the package is not installed.
        ConfigError: for an unknown algorithm, or environments that take text.
    """
    spec = algorithm_of(algorithm)
    vectors, monitor = required("stable_baselines3.common.vec_env"), required("stable_baselines3.common.monitor")
    envs = [make_env() for _ in range(SIDE_BY_SIDE)]
    check_discrete(envs[0])
    made = vectors.DummyVecEnv([lambda env=env: monitor.Monitor(env) for env in envs])
    make = getattr(required(spec.module), spec.name)
    return make(
        "MlpPolicy",
        made,
        seed=seed,
        device="cpu",
        tensorboard_log=None if tensorboard is None else str(tensorboard),
        **spec.options,
    )


def score(agent: Any, env: DiscreteSearch, questions: Sequence[Question], masked: bool) -> tuple[float, float]:
    """Mean EM and searches of the greedy agent on the questions."""
    finals = []
    for question in questions:
        features, info = env.reset(options={"question_id": question.id})
        while not info["stop"]:
            action, _ = agent.predict(
                features, deterministic=True, **({"action_masks": info["action_mask"]} if masked else {})
            )
            features, _, _, _, info = env.step(int(action))
        finals.append((info["em"], info["searches"]))
    em, searches = np.mean(finals, axis=0)
    return float(em), float(searches)


def random_score(env: DiscreteSearch, questions: Sequence[Question], seed: int = 0, repeats: int = 3) -> float:
    """Mean EM of uniformly random actions among those that exist."""
    rng, scores = np.random.default_rng(seed), []
    for question in [*questions] * repeats:
        _, info = env.reset(options={"question_id": question.id})
        while not info["stop"]:
            _, _, _, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        scores.append(info["em"])
    return float(np.mean(scores))


def algorithm_of(algorithm: str) -> Sb3Algorithm:
    """The algorithm of that name.

    Raises:
        ConfigError: for an unknown name.
    """
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"algo: got {algorithm!r}, expected one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm]


def required(module: str) -> Any:
    """A module of stable-baselines3 or sb3-contrib.

    Raises:
        MissingExtraError: naming the pip command, if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"baseline sb3: needs {module.split('.')[0]}, which is not installed; run: pip install 'a2tgpo[sb3]'"
        ) from error


def check_discrete(env: gym.Env[Any, Any]) -> None:
    """Refuse an environment that stable-baselines3 cannot act in.

    Raises:
        ConfigError: for text actions, naming the wrapper.
    """
    if not isinstance(env.action_space, gym.spaces.Discrete | gym.spaces.Box):
        got = f"{type(env.action_space).__name__} actions"
        raise ConfigError(
            f"stable-baselines3: got an environment with {got}, expected numbers; wrap it:"
            " a2tgpo.envs.wrappers.DiscreteSearch(env)"
        )


def _made(environment: EnvironmentSettings, split: str) -> SearchQAEnv:
    a2tgpo.envs.register_envs()
    env = gym.make(
        environment.id, split=split, scorer=None, disable_env_checker=True, **environment.arguments()
    ).unwrapped
    if not isinstance(env, SearchQAEnv):
        raise ConfigError(f"environment.id: got {environment.id!r}, expected one of this package's environments")
    return env
