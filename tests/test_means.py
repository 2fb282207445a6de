"""Means and their intervals."""

import math

import pytest

from a2tgpo.means import Interval, mean

NAN = math.nan


def test_mean_is_over_the_numbers() -> None:
    assert mean([1.0, NAN, 3.0]) == 2.0
    assert math.isnan(mean([NAN]))
    assert math.isnan(mean([]))


def test_over_seeds_is_student_t() -> None:
    # mean 2, sample deviation 1, n = 3: half width t(0.975, 2)·1/√3 = 4.302653/1.732051 = 2.484138
    interval = Interval.over_seeds([1.0, NAN, 2.0, 3.0])
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half == pytest.approx(2.484138, abs=1e-6)
    assert (interval.low, interval.high) == (2.0 - interval.half, 2.0 + interval.half)
    assert f"{interval:.2f}" == "2.00 ± 2.48"


@pytest.mark.parametrize("values", [[1.5], [1.5, 1.5], [1.0, 2.0], [1.5, NAN, 1.5]])
def test_one_or_two_seeds_have_no_interval(values: list[float]) -> None:
    interval = Interval.over_seeds(values)
    assert interval.mean == 1.5
    assert math.isnan(interval.half)
    assert math.isnan(interval.low)
    assert f"{interval:.2f}" == "1.50"


def test_over_questions_is_the_normal_distribution() -> None:
    # ten of twenty right: sample deviation √(0.25·20/19), half width 1.959964·0.512989/√20 = 0.224823
    interval = Interval.over_questions([0.0, 1.0] * 10)
    assert (interval.mean, interval.count) == (0.5, 20)
    assert interval.half == pytest.approx(0.224823, abs=1e-6)
    assert math.isnan(Interval.over_questions([0.0, 1.0] * 9).half)
