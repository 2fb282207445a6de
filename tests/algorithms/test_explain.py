"""The printed arithmetic can be followed, and ends in the credit that training uses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.algorithms import (
    A2TGPO,
    ALGORITHMS,
    AT2PO,
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    IGPO,
    Algorithm,
    DrGRPO,
    GiGPO,
)
from a2tgpo.algorithms.explain import explain
from a2tgpo.batch import Credit, TurnTable
from a2tgpo.cli import main
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.run_folder.episodes import episode_to_dict


def episode(outcome: float, gains: list[float], states: list[str]) -> Episode:
    searches = [
        Turn((1,), (2, 3), (-0.1, -0.2), ActionKind.SEARCH, 0.0, gain, state, f"who is {state}", probability_gain=gain)
        for gain, state in zip(gains, states, strict=False)
    ]
    answer = Turn((4,), (5,), (-0.3,), ActionKind.ANSWER, outcome, None, states[-1])
    return Episode(0, "q7", 0, (*searches, answer), outcome, StopReason.ANSWERED)


GROUP = [
    episode(1.0, [0.30, 0.10], ["a", "b", "c"]),
    episode(0.0, [0.05], ["a", "d"]),
    episode(0.0, [-0.10, 0.20], ["a", "b", "e"]),
]


def test_a2tgpo_is_explained_with_gain_mean_z_accumulation_advantage_and_clip_range() -> None:
    text = explain(GROUP, A2TGPO())
    # z = (.30 − .08333)/.16499 = 1.31319; D = 1.31319 − .99998 = .31321; A = .31321/√2 + 1.41421 = 1.63568; c =
    # 1.17284
    first = next(line for line in text.splitlines() if line.startswith("     0"))
    assert [float(value) for value in first.split()] == pytest.approx(
        [
            0,
            0.30,
            0.08333,
            0.16499,
            3,
            1.31319,
            0.31321,
            2,
            1.41421,
            1.63568,
            1.17284,
            1 - 1.17284 * 0.003,
            1 + 1.17284 * 0.004,
        ],
        abs=2e-5,
    )
    assert re.search(r"turn 0 \(search: who is a\): A = 1·0\.313\d\d/√2 \+ 1\.4142\d = 1\.635\d\d", text)
    assert "turn 2 (answer): A = zR = 1.4142" in text


def stated_results(text: str) -> list[float]:
    return [float(line.rsplit("=", 1)[1]) for line in text.splitlines() if line.startswith("  turn ") and "A =" in line]


def evaluated(line: str) -> float:
    """The value of the printed arithmetic 'A = a·b/√n + c = result' before its last '='."""
    middle = line.split("A = ", 1)[1].rsplit(" = ", 1)[0].replace("−", "-")
    fraction = re.fullmatch(r"\((\S+) - (\S+)\)/\((\S+) \+ 1e-6\)", middle)
    if fraction:
        value, mean, std = map(float, fraction.groups())
        return (value - mean) / (std + 1e-6)
    if difference := re.fullmatch(r"(\S+) - (\S+)", middle):
        return float(difference[1]) - float(difference[2])
    total = 0.0
    for term in middle.split(" + "):
        numerator, _, root = term.partition("/√")
        product = 1.0
        for factor in numerator.split("·"):
            product *= float(factor)
        total += product / (float(root) ** 0.5 if root else 1.0)
    return total


ALONE = replace(episode(0.75, [0.2], ["a", "f"]), group=1, question_id="q8")


def named(algorithm: Algorithm) -> str:
    return type(algorithm).__name__


EXPLAINED: list[Algorithm] = [
    A2TGPO(),
    A2TGPO(gamma=0.5, turn_groups=False, variance_rescaling=False, ig_weight=2.0),
    IGPO(),
    IGPO(gamma=0.5, normalization="separate", gain_weight=2.0),
    GiGPO(),
    GiGPO(gamma=0.5, episode_statistics="turns", normalize_std=False, step_weight=0.5),
    GRPO(),
    GRPO(singleton="raw"),
    DrGRPO(singleton="raw"),
    GSPO(),
    CISPO(),
    DAPO(max_tokens=6, overlong_buffer=4, overlong_factor=0.5),
    AT2PO(),
]
"""Algorithms that show their arithmetic, with options that change it."""


@pytest.mark.parametrize("algorithm", [*EXPLAINED, *(cls() for cls in ALGORITHMS.values())], ids=named)
def test_stated_results_are_the_credit(algorithm: Algorithm) -> None:
    group = [*GROUP, ALONE]
    credit = algorithm(algorithm.tabulate(group)).advantage
    flat = [float(credit[row, turn]) for row, played in enumerate(group) for turn in range(played.num_turns)]
    assert stated_results(explain(group, algorithm)) == pytest.approx(flat, abs=1e-5)


@pytest.mark.parametrize("algorithm", EXPLAINED, ids=named)
def test_printed_arithmetic_gives_the_stated_result(algorithm: Algorithm) -> None:
    lines = [
        line
        for line in explain([*GROUP, ALONE], algorithm).splitlines()
        if line.startswith("  turn ") and "A = " in line and "zR =" not in line
    ]
    assert len(lines) >= 5
    for line in lines:
        assert evaluated(line) == pytest.approx(float(line.rsplit("=", 1)[1]), abs=1e-4)


def test_a_subclass_with_credit_of_its_own_is_not_explained_by_its_parent() -> None:
    class Doubled(GRPO):
        def __call__(self, table: TurnTable) -> Credit:
            return Credit.of(2 * super().__call__(table).advantage)

    text = explain(GROUP, Doubled())
    # twice (1 − 1/3)/(1/√3 + 1e-6)
    assert "turn 0 (search: who is a): A = 2.30940" in text
    assert "credit as Doubled gives it" in text


def test_failed_episodes_are_left_out_and_missing_gains_are_said() -> None:
    failed = replace(GROUP[0], stop=StopReason.FAILED)
    assert explain([*GROUP, failed], A2TGPO()) == explain(GROUP, A2TGPO())
    with pytest.raises(ValueError, match="none was played"):
        explain([failed], A2TGPO())
    blank = [
        replace(played, turns=tuple(replace(turn, information_gain=None) for turn in played.turns)) for played in GROUP
    ]
    with pytest.raises(ValueError, match="without information gain"):
        explain(blank, A2TGPO())


class NoText:
    """A tokenizer that writes nothing."""

    def decode(self, ids: list[int]) -> str:
        return ""

    def batch_decode(self, ids: list[list[int]]) -> list[str]:
        return [""] * len(ids)


def test_the_command_explains_a_recorded_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = [replace(played, group=1, question_id="q8") for played in GROUP]
    path = tmp_path / "step.jsonl"
    path.write_text(
        "".join(json.dumps(episode_to_dict(played, NoText(), None, 0)) + "\n" for played in [*GROUP, *other])
    )
    assert main(["explain", "a2tgpo", "--episode", str(path), "--question", "q7"]) == 0
    assert capsys.readouterr().out.strip() == explain(GROUP, A2TGPO()).strip()
    assert main(["explain", "igpo", "--episode", str(path)]) == 0
    assert "question q8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a2gpo", "--episode", "x.jsonl"], "did you mean 'a2tgpo'"),
        (["a2tgpo", "--episode", "x.jsonl"], "got 'x.jsonl', which is not a file"),
    ],
)
def test_the_command_says_what_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    assert message in capsys.readouterr().err
