"""Algorithms and process rewards from outside of the package."""

import sys
from pathlib import Path

import pytest
import torch

from a2tgpo.algorithms import A2TGPO, ALGORITHMS, LossSpec
from a2tgpo.algorithms.loader import load_algorithm, make_algorithm
from a2tgpo.errors import ConfigError
from tests.support.tables import make_table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MY_ALGORITHM = f"{EXAMPLES / 'my_algorithm.py'}:MyAlgorithm"


def test_my_algorithm_gives_credit() -> None:
    # outcomes (1, 0) → ±1; gains (.3, .1, .2): μ = .2, σ_p = .081650 → (1.22474, −1.22474, 0); only the positive one
    # counts, half
    table = make_table([1, 0], [3, 2], [[0.3, 0.1], [0.2]])
    credit = make_algorithm(MY_ALGORITHM)(table)
    torch.testing.assert_close(
        credit.advantage, torch.tensor([[1.61237, 1.0, 1.0], [-1.0, -1.0, 0.0]]), atol=1e-3, rtol=0
    )
    assert torch.equal(
        make_algorithm(MY_ALGORITHM, {"bonus": 0.0})(table).advantage[0],
        torch.full((3,), credit.advantage[0, 2].item()),
    )


def test_my_algorithm_is_thirty_lines_or_fewer() -> None:
    lines = (EXAMPLES / "my_algorithm.py").read_text().splitlines()
    assert len(lines) <= 30


def test_a_file_is_loaded_once() -> None:
    assert load_algorithm(MY_ALGORITHM) is load_algorithm(MY_ALGORITHM)


def test_loss_fields_are_overridden_one_by_one() -> None:
    algorithm = make_algorithm("a2tgpo", {"gamma": 0.9, "loss": {"clip_low": 0.1, "dual_clip": 3.0}})
    assert algorithm == A2TGPO(
        gamma=0.9,
        loss=LossSpec(ratio="turn", clip_low=0.1, clip_high=4e-3, dual_clip=3.0, aggregation="seq-mean-token-mean"),
    )


def test_names_are_those_of_the_dictionary() -> None:
    assert {name: load_algorithm(name) for name in ALGORITHMS} == ALGORITHMS


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("a2gpo", {}, r"algorithm: got 'a2gpo', expected one of a2tgpo, .*; did you mean 'a2tgpo'"),
        ("nowhere.py:Mine", {}, r"algorithm: got file 'nowhere.py', which does not exist"),
        (MY_ALGORITHM.replace(":MyAlgorithm", ":Mine"), {}, r"but the file has no 'Mine'; it has MyAlgorithm"),
        ("igpo", {"gamma": 2.0}, r"IGPO.gamma: got 2.0"),
        (
            "igpo",
            {"loss": {"cliplow": 0.1}},
            r"loss: got unknown field 'cliplow', expected one of .*; did you mean 'clip_low'",
        ),
        ("igpo", {"gama": 1.0}, r"IGPO: got unknown parameter 'gama'.*did you mean 'gamma'"),
    ],
)
def test_what_cannot_be_built_is_refused(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_algorithm(name, parameters)


def test_an_error_in_the_file_is_shown_and_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise RuntimeError('broken on purpose')")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"broken.py', which cannot be imported \(RuntimeError: broken on"):
            load_algorithm(f"{path}:Anything")


def test_a_rule_takes_the_place_of_information_gain() -> None:
    algorithm = load_algorithm(f"{EXAMPLES / 'supporting_passages.py'}:A2TGPOWithSupport")()
    example = sys.modules[type(algorithm).__module__]
    episodes = [
        example.played([["ada", "x"], ["byron"]], 1.0),
        example.played([["x"], ["ada"]], 0.0),
        example.played([["ada"], ["ada"]], 0.0),
    ]
    assert not algorithm.needs_information_gain
    table = algorithm.tabulate(episodes)
    # the third episode retrieves the same passage twice: only the first time counts
    assert table.information_gain[:, :2].tolist() == [[1, 1], [0, 1], [1, 0]]
    assert table.scored.tolist() == [[True, True, False]] * 3
    clip_scale = algorithm(table).clip_scale
    first, second = clip_scale[:, 0].tolist(), clip_scale[:, 1].tolist()
    assert first[0] == first[2] > 1 > first[1]
    assert second[0] == second[1] > 1 > second[2]
