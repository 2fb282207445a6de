"""Outcomes that look at the format of the whole episode, and rewards of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2tgpo.config import EnvironmentSettings
from a2tgpo.envs import PROTOCOLS, Passage, Question, SearchQAEnv
from a2tgpo.envs.protocols.writing import written_answer, written_search
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.envs.scoring.rewards import REWARDS, EpisodeFormat, em_format, reward_of
from a2tgpo.errors import ConfigError, RetrievalError

QUESTION = Question("q1", "Where?", ("Kloford", "Old Kloford"))
GOOD, BROKEN, CUT = EpisodeFormat(2, 0, True), EpisodeFormat(2, 1, True), EpisodeFormat(2, 0, False)


class Broken:
    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        raise RetrievalError("down")


def played(*actions: str, **settings: Any) -> tuple[float, dict[str, Any]]:
    """Reward and info of the last turn."""
    retriever = settings.pop("retriever", Bm25Retriever([Passage("p", "Kloford", "Kloford is a city.")]))
    env = SearchQAEnv([QUESTION], retriever, top_k=1, max_turns=3, **settings)
    env.reset()
    for action in actions:
        _, reward, _, _, info = env.step(action)
    return reward, info


@pytest.mark.parametrize(
    ("answer", "form", "outcome"),
    [
        ("kloford", GOOD, 1.0),
        ("Paris", GOOD, 0.0),
        ("kloford", BROKEN, -1.0),
        ("Paris", BROKEN, -1.0),
        (None, CUT, -1.0),
        (None, EpisodeFormat(0, 0, False), -1.0),
    ],
)
def test_exact_match_counts_in_a_valid_format_only(answer: str | None, form: EpisodeFormat, outcome: float) -> None:
    assert em_format(answer, QUESTION.answers, form) == outcome


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_has_a_format_to_keep_and_to_break(name: str) -> None:
    protocol = PROTOCOLS[name]
    search, right = written_search(protocol, "Kloford"), written_answer(protocol, "Kloford")
    wrong = written_answer(protocol, "Paris")
    last = "<search>" if name != "tool_call" else "<tool_call>"
    cases: list[tuple[tuple[str, ...], float]] = [
        ((search, right), 1.0),
        ((right,), 1.0),
        ((search, wrong), 0.0),
        (("nonsense", right), -1.0),  # a turn without an action
        ((search, f"{last} {right}"), -1.0),  # a stray tag before the answer
        ((search, search, search), -1.0),  # the turn limit came before an answer
        (("a", "b", "c"), -1.0),
    ]
    for actions, outcome in cases:
        reward, info = played(*actions, protocol=protocol, reward="em_format")
        assert (reward, info["score"], info["outcome"]) == (outcome, outcome, outcome), actions
    # that the search engine broke is not the agent's fault
    reward, _ = played(search, right, protocol=protocol, reward="em_format", retriever=Broken())
    assert reward == 1.0


def test_the_box_is_part_of_the_boxed_format() -> None:
    plain = "<think> I know. </think> <answer> Kloford </answer>"
    assert played(plain, protocol="boxed", reward="em_format")[0] == -1.0
    assert played(plain, protocol="boxed")[0] == 1.0
    no_thought = "<answer> \\boxed{Kloford} </answer>"
    assert played(no_thought, protocol="boxed", reward="em_format")[0] == -1.0


def test_other_rewards_do_not_look_at_the_format() -> None:
    for name, reward in REWARDS.items():
        if name != "em_format":
            assert reward("Kloford", QUESTION.answers, GOOD) == reward("Kloford", QUESTION.answers, BROKEN) == 1.0


FILE = """
import math

def plain(answer, gold):
    return 0.25 if answer in gold else -0.5

def strict(answer, gold, form):
    return -form.errors / form.turns if not form.valid else 2

def raises(answer, gold):
    return {}[answer]

def nan(answer, gold):
    return math.nan

def text(answer, gold):
    return "1"

def flag(answer, gold):
    return answer in gold

def nothing(answer, gold):
    pass

def other(question):
    return 1.0
"""


def from_file(tmp_path: Path, function: str) -> Any:
    (tmp_path / "mine.py").write_text(FILE)
    return EnvironmentSettings(reward=f"{tmp_path}/mine.py:{function}").arguments()["reward"]


def test_rewards_from_a_file_see_answer_gold_answers_and_format(tmp_path: Path) -> None:
    right, broken = "<answer> Kloford </answer>", "nonsense"
    run: Callable[..., tuple[float, Any]] = lambda name, *actions: played(  # noqa: E731
        *actions, protocol="tags_brief", reward=from_file(tmp_path, name)
    )
    assert run("plain", right)[0] == 0.25
    assert run("plain", broken, right)[0] == 0.25
    assert run("plain", broken, broken, broken)[0] == -0.5
    assert run("strict", right)[0] == 2.0
    assert run("strict", broken, right)[0] == -0.5


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("raises", r"raised KeyError: 'Kloford'; for answer 'Kloford' to question 'q1', expected a number"),
        ("nan", r"got nan \(float\) for answer 'Kloford' to question 'q1', expected a finite number"),
        ("text", r"got '1' \(str\) for answer"),
        ("flag", r"got True \(bool\) for answer"),
        ("nothing", r"got None \(NoneType\) for answer"),
    ],
)
def test_rewards_that_give_no_number_are_errors_with_file_and_question(
    tmp_path: Path, function: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=rf"reward .*mine\.py:{function}: {told}"):
        played("<answer> Kloford </answer>", protocol="tags_brief", reward=from_file(tmp_path, function))


def test_numpys_numbers_are_numbers_and_its_flags_are_not() -> None:
    answer = "<answer> Kloford </answer>"
    assert played(answer, protocol="tags_brief", reward=lambda _answer, _gold: np.float32(0.5))[0] == 0.5
    with pytest.raises(ConfigError, match=r"bool"):
        played(answer, protocol="tags_brief", reward=lambda _answer, _gold: np.bool_(True))


def test_what_is_no_reward_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward: got 'bleu', expected one of em, f1, cover_em, set_f1, em_format"):
        reward_of("bleu")
    for wrong in (from_file(tmp_path, "other"), 1.0, None):
        with pytest.raises(ConfigError, match=r"expected a callable of answer .*, gold answers and the"):
            reward_of(wrong)
