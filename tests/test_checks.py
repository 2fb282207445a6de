"""Numbers of the wrong kind, as they come from files and command lines, are named and not a TypeError from within."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from a2tgpo.checks import check_number, check_whole


@pytest.mark.parametrize("value", [1, 7, np.int64(3)])
def test_whole_numbers(value: Any) -> None:
    check_whole("top_k", value, 1)


@pytest.mark.parametrize("value", [0, -1, "3", 3.0, None, True, [3]])
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^top_k: got .*, expected a whole number of at least 1; lower it$"):
        check_whole("top_k", value, 1, "; lower it")


@pytest.mark.parametrize("value", [-0.1, float("nan"), "0.1", None, True])
def test_what_is_negative_or_no_number(value: Any) -> None:
    check_number("format_penalty", 0, 0.0)
    with pytest.raises(ValueError, match=r"^format_penalty: got .*, expected a number of at least 0$"):
        check_number("format_penalty", value, 0.0)


MADE = """
import gymnasium as gym
import a2tgpo.envs
wrongs = {"top_k": "3", "max_turns": 2.5, "max_searches": "1", "format_penalty": "0.1", "worlds": "2", "hops": 3}
wrongs |= {"fictional": "false", "seed": 1.5, "scorer": 3, "budget": {"total": 3}}
for name, value in [*wrongs.items(), ("max_turns", "5"), ("hops", "12")]:
    for make in (gym.make, gym.make_vec):
        try:
            make("a2tgpo/Almanac-v0", **{name: value})
        except ValueError as error:
            assert str(error).startswith(f"{name}: got {value!r}, expected "), error
        else:
            raise AssertionError((name, value))
"""


def test_made_environments_name_the_argument() -> None:
    """In a process of its own, where no type checker stands before the functions."""
    done = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
