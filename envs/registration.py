"""The ids that `gymnasium.make` knows.

Questions and corpora are loaded when an environment is made. Every id takes the settings of `SearchQAEnv`
(`EpisodeSettings`) and those that say what is asked (`DataSettings`, for `Almanac` `AlmanacSettings`).
"""

from typing import Any

import gymnasium as gym

from a2tgpo.checks import did_you_mean
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.envs.settings import AlmanacSettings, DataSettings, EpisodeSettings, check_names, names, take
from a2tgpo.envs.sources import almanac, search_qa
from a2tgpo.envs.vector import SearchQAVectorEnv
from a2tgpo.errors import ConfigError

NAMESPACE = "a2tgpo"
DATASETS: dict[str, str] = {
    "HotpotQA": "hotpotqa",
    "TwoWikiMultihopQA": "2wikimultihopqa",
    "MuSiQue": "musique",
    "Bamboogle": "bamboogle",
    "NaturalQuestions": "nq",
    "TriviaQA": "triviaqa",
    "PopQA": "popqa",
}
"""Ids of the seven public sets to their names."""


def register_envs() -> None:
    """Register every id of this package with Gymnasium; harmless when called again (the plugin entry point and the
    import both do).
    """
    _register("Almanac", "almanac", {})
    _register("SearchQA", "search_qa", {})
    for name, dataset in DATASETS.items():
        _register(name, "search_qa", {"dataset": dataset})


def check_id(env_id: str) -> None:
    """Check that Gymnasium knows the id, and that its environment asks questions as those of this package do.

    Raises:
        ConfigError: with the nearest of this package's ids.
    """
    register_envs()
    try:
        maker = gym.spec(env_id).vector_entry_point
    except (gym.error.Error, ImportError, ValueError):
        maker = None
    if maker is None or str(maker).startswith("gymnasium."):
        known = [name for name in gym.registry if name.startswith(f"{NAMESPACE}/")]
        raise ConfigError(
            f"environment.id: got {env_id!r}, expected one of {', '.join(known)}, or the id of another"
            f" SearchQAVectorEnv that was registered with Gymnasium{did_you_mean(env_id, known)}"
        )


def _register(name: str, maker: str, kwargs: dict[str, Any]) -> None:
    env_id = f"{NAMESPACE}/{name}-v0"
    if env_id not in gym.registry:
        gym.register(
            env_id,
            entry_point=f"{__name__}:make_{maker}",
            vector_entry_point=f"{__name__}:make_{maker}_vector",
            kwargs=kwargs,
        )


def make_search_qa(**settings: Any) -> SearchQAEnv:
    """`gymnasium.make("a2tgpo/SearchQA-v0", dataset=…)`.

    Args:
        settings: fields of `DataSettings` and `EpisodeSettings`, and `render_mode`.
    """
    return SearchQAEnv(*search_qa(_data(settings)), **settings)


def make_search_qa_vector(num_envs: int = 1, **settings: Any) -> SearchQAVectorEnv:
    """`gymnasium.make_vec("a2tgpo/SearchQA-v0", dataset=…)`; settings as for `make_search_qa`."""
    return SearchQAVectorEnv(*search_qa(_data(settings)), num_envs, **settings)


def make_almanac(**settings: Any) -> SearchQAEnv:
    """`gymnasium.make("a2tgpo/Almanac-v0")`: the embedded world.

    Args:
        settings: fields of `AlmanacSettings` and `EpisodeSettings`, and `render_mode`.
    """
    return SearchQAEnv(*almanac(_world(settings)), **settings)


def make_almanac_vector(num_envs: int = 1, **settings: Any) -> SearchQAVectorEnv:
    """`gymnasium.make_vec("a2tgpo/Almanac-v0")`; settings as for `make_almanac`."""
    return SearchQAVectorEnv(*almanac(_world(settings)), num_envs, **settings)


def _data(settings: dict[str, Any]) -> DataSettings:
    """Take what describes questions and corpus out of the settings of an environment."""
    _check(settings, DataSettings, f"; only {NAMESPACE}/Almanac-v0 takes it")
    return take(DataSettings, settings)


def _world(settings: dict[str, Any]) -> AlmanacSettings:
    """Take what describes the embedded world out of the settings of an environment."""
    _check(settings, AlmanacSettings, f"; ids that read files take it, such as {NAMESPACE}/SearchQA-v0")
    return take(AlmanacSettings, settings)


def _check(settings: dict[str, Any], kind: type, elsewhere: str) -> None:
    expected = (*names(kind, EpisodeSettings), "render_mode", "autoreset_mode")
    check_names("gymnasium.make", settings, expected, elsewhere)
    take(EpisodeSettings, dict(settings))  # what is wrong with these is said before anything is read
