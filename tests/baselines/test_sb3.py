"""The discrete wrapper, and stable-baselines3 on it."""

import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from a2tgpo.cli import main
from a2tgpo.config import EnvironmentSettings
from a2tgpo.envs import PROTOCOLS, Passage, Question, SearchQAEnv
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.envs.wrappers import ENTITIES, GLOBALS, PER_ENTITY, TEMPLATES, DiscreteSearch, GainReward, LimitEnds
from a2tgpo.means import Interval

ANSWER = ENTITIES * TEMPLATES
PASSAGES = [
    Passage("1", "", "Mara Venn's birthplace is Kloford."),
    Passage("2", "", "Kloford's country is Braland."),
    Passage("3", "", "Braland's capital is Zeistad."),
    Passage("4", "", "Mara Venn's field is Optics."),
]
QUESTION = Question("q", "What is Mara Venn's birthplace's country?", ("Braland",))
WORLD = EnvironmentSettings(worlds=2, max_turns=6, max_searches=5)


def search_env(**settings: object) -> SearchQAEnv:
    arguments: dict[str, object] = {"top_k": 1, "max_turns": 5, "max_searches": 3} | settings
    return SearchQAEnv([QUESTION], Bm25Retriever(PASSAGES), **arguments)  # type: ignore[arg-type]


def test_a_chain_is_walked_by_numbers() -> None:
    env = DiscreteSearch(search_env())
    features, info = env.reset(seed=0)
    # one entity (Mara Venn: exists, in the question), two words (birthplace, country)
    table = features[: ENTITIES * PER_ENTITY].reshape(ENTITIES, PER_ENTITY)
    assert table.sum(axis=1).tolist() == [2.0] + [0.0] * 7
    assert np.flatnonzero(info["action_mask"]).tolist() == [0, 1, 2, ANSWER]
    assert features[-GLOBALS:].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]

    features, _, _, _, info = env.step(1)  # Mara Venn birthplace
    assert info["query"] == "Mara Venn birthplace"
    table = features[: ENTITIES * PER_ENTITY].reshape(ENTITIES, PER_ENTITY)
    # Kloford is first now: exists, new, first of the new, shared a sentence with "birthplace"
    assert table[0].tolist() == [1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    # Mara Venn: exists, in the question, searched with the first word, in the same sentence
    assert table[1].tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    assert features[-GLOBALS:].tolist() == pytest.approx([1 / 5, 1 / 3, 0, 1, 1, 0, 0, 1 / 3, 0, 0, 0])

    _, _, _, _, info = env.step(2)  # Kloford country
    assert info["query"] == "Kloford country"
    _, reward, terminated, truncated, info = env.step(ANSWER)
    assert (info["answer"], reward, terminated, truncated) == ("Braland", 1.0, True, False)


def test_numbers_of_things_that_do_not_exist_start_again() -> None:
    env = DiscreteSearch(search_env())
    env.reset(seed=0)
    # entity 3 of 1 is entity 0; template 4 of 3 (alone, birthplace, country) is template 1
    assert env.text_of(3 * TEMPLATES + 4) == env.text_of(1)
    assert env.text_of(ANSWER + 5) == env.text_of(ANSWER)


def test_the_mask_forbids_searches_beyond_the_budget() -> None:
    env = DiscreteSearch(search_env(max_searches=1))
    env.reset(seed=0)
    _, _, _, _, info = env.step(1)
    assert np.flatnonzero(info["action_mask"]).tolist() == [ANSWER, ANSWER + 1]
    assert np.array_equal(info["action_mask"], env.action_masks())


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_checkers_accept_the_wrapper(protocol: str) -> None:
    env_checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="needs stable-baselines3: pip install 'a2tgpo[sb3]'"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env_checker.check_env(DiscreteSearch(search_env(protocol=protocol)))
        # a wrapper is what is checked
        warnings.filterwarnings("ignore", "(?s).*is different from the unwrapped version")
        gymnasium_check_env(DiscreteSearch(search_env(protocol=protocol)), skip_render_check=True)


def test_gain_is_added_to_the_reward_of_searches_only() -> None:
    env = GainReward(DiscreteSearch(search_env()), weight=0.5)
    env.reset(seed=0)
    env.step(1)
    _, reward, _, _, info = env.step(2)  # finds the answer's passage
    assert reward == pytest.approx(0.5 * info["information_gain"])
    assert reward > 0
    _, reward, _, _, info = env.step(ANSWER)
    assert np.isnan(info["information_gain"])
    assert reward == 1.0


def test_limits_end_an_episode_for_good() -> None:
    env = LimitEnds(DiscreteSearch(search_env(max_turns=2)))
    env.reset(seed=0)
    env.step(1)
    _, _, terminated, truncated, info = env.step(1)
    assert (terminated, truncated, info["stop"]) == (True, False, "max_turns")


def test_foreign_environments_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"DiscreteSearch: got CartPoleEnv, expected a SearchQAEnv, .*gymnasium.make\('a2tgpo/Almanac-v0'\)",
    ):
        DiscreteSearch(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"GainReward: .* expected a SearchQAEnv with a scorer"):
        GainReward(search_env(scorer=None), 0.1)


def test_text_actions_are_refused() -> None:
    pytest.importorskip("stable_baselines3", reason="needs stable-baselines3: pip install 'a2tgpo[sb3]'")
    from a2tgpo.baselines.sb3.train import untrained_agent

    with pytest.raises(
        ValueError, match=r"got an environment with UnicodeText actions, expected numbers; wrap it: .*DiscreteSearch"
    ):
        untrained_agent("ppo", search_env, seed=0)


def test_a_missing_package_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from a2tgpo.baselines.sb3.train import algorithm_of, required

    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(
        ImportError, match=r"needs stable_baselines3, which is not installed; run: pip install 'a2tgpo\[sb3\]'"
    ):
        required("stable_baselines3")
    assert main(["baseline", "sb3", "--seeds", "0"]) == 2
    assert "pip install 'a2tgpo[sb3]'" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="algo: got 'sac', expected one of ppo"):
        algorithm_of("sac")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param("ppo", marks=pytest.mark.slow), "a2c", "dqn", pytest.param("maskable_ppo", marks=pytest.mark.slow)],
)
def test_every_algorithm_trains(algorithm: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "sb3_contrib" if algorithm == "maskable_ppo" else "stable_baselines3",
        reason="needs stable-baselines3: pip install 'a2tgpo[sb3]'",
    )
    from a2tgpo.baselines.sb3.train import Sb3Settings, Worlds, train

    curve = train(
        Sb3Settings(algorithm, steps=512, gain_weight=0.1, evaluate_questions=4), Worlds.of(WORLD), tensorboard=tmp_path
    )
    assert len(curve.steps) == len(curve.em) == len(curve.searches) >= 2
    assert curve.steps[0] == 0
    assert list(tmp_path.rglob("events*"))


@pytest.mark.slow
def test_ppo_learns(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs stable-baselines3: pip install 'a2tgpo[sb3]'")
    from a2tgpo.baselines.sb3.study import run, summary, write_study
    from a2tgpo.baselines.sb3.train import Sb3Settings

    study = run(
        Sb3Settings("ppo", steps=50_000),
        EnvironmentSettings(),
        seeds=(0, 1),
        gain_weights=(0.0, 0.1),
        workers=2,
        tensorboard=None,
    )
    write_study(study, tmp_path)
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert "effect of gain, final EM" in summary(study)
    for curve in study.of_weight(with_gain=False):
        assert curve.em[-1] >= 2 * study.random_em > 0


def test_what_may_be_said_of_a_difference() -> None:
    from a2tgpo.baselines.sb3.study import finding

    # three seeds: half width 4.302653·0.01/√3 = 0.024841
    assert finding(Interval.over_seeds([0.09, 0.10, 0.11])) == "+0.100 [+0.075, +0.125]: gain helps"
    assert finding(Interval.over_seeds([-0.09, -0.10, -0.11])).endswith(": gain hurts")
    assert finding(Interval.over_seeds([-0.1, 0.1, 0.0])).endswith(": no difference can be told")
    assert finding(Interval.over_seeds([0.1])) == "+0.100 (1 seed: too few to say anything)"
    assert finding(Interval.over_seeds([0.1, 0.1])) == "+0.100 (2 seeds: too few to say anything)"
