"""Statistics against scipy, slow oracles and simulated studies."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from a2tgpo.cli import main
from a2tgpo.config import Recipe, StudySettings
from a2tgpo.studies.comparisons import Statistics, questions_of, results_of, statistics_of
from a2tgpo.studies.simulation import Noise, simulate
from a2tgpo.studies.statistics import (
    McNemar,
    Resampling,
    Variation,
    holm,
    interquartile_mean,
    paired_difference,
    probability_of_improvement,
)
from a2tgpo.studies.study import load_study
from a2tgpo.studies.verdicts import words
from tests.support.finished_study import finished_study


def resampling(seeds: int, questions: int, draws: int = 4000) -> Resampling:
    return Resampling.of(seeds, questions, draws, np.random.default_rng(0))


def test_variation_is_the_unbiased_two_way_one() -> None:
    # rows (seeds) 0 2 | 2 6: seed means 1, 4; question means 1, 4; grand mean 2.5
    # seeds: var(1, 4) = 4.5, /2 = 2.25; questions: the same; rest: 0.5 −0.5 −0.5 0.5, sum of squares 1, over 1 degree,
    # /4 = 0.25
    found = Variation.of(np.array([[0.0, 2.0], [2.0, 6.0]]))
    assert found.variance == pytest.approx(2.25 + (2.25 - 0.25))
    assert found.degrees == 1


def test_variation_is_unbiased_over_simulated_tables() -> None:
    # 4 seeds of deviation 0.5, 10 questions of 0.7, rest of 1: variance of the grand mean = 0.25/4 + 0.49/10 + 1/40 =
    # 0.1365
    rng = np.random.default_rng(1)
    found = [
        Variation.of(rng.normal(0, 0.5, (4, 1)) + rng.normal(0, 0.7, 10) + rng.normal(0, 1, (4, 10))).variance
        for _ in range(4000)
    ]
    assert np.mean(found) == pytest.approx(0.1365, rel=0.05)


def test_without_question_effects_the_test_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(6, 30)), rng.normal(size=(6, 30))
    first -= (first - second).mean(axis=0)  # no question differs on average
    first += 0.3
    found = paired_difference(first, second, resampling(6, 30))
    expected = stats.ttest_rel(first.mean(axis=1), second.mean(axis=1))
    assert found.p_value == pytest.approx(expected.pvalue, abs=1e-12)
    assert found.mean == pytest.approx(0.3)


def test_bootstrap_means_equal_explicit_resampling() -> None:
    matrix, drawn = np.random.default_rng(3).normal(size=(3, 5)), resampling(3, 5, draws=20)
    for draw, mean in enumerate(drawn.means(matrix)):
        slow = sum(
            drawn.seeds[draw, i] * drawn.questions[draw, j] * matrix[i, j] for i, j in product(range(3), range(5))
        )
        assert mean == pytest.approx(slow, abs=1e-12)
        assert drawn.seeds[draw].sum() == pytest.approx(1)


@given(st.integers(1, 5), st.integers(2, 30), st.integers(0, 10_000))
def test_swapping_the_contenders_mirrors_the_difference(seeds: int, questions: int, seed: int) -> None:
    rng, drawn = np.random.default_rng(seed), resampling(seeds, questions, draws=50)
    first, second = (rng.integers(0, 2, (seeds, questions)).astype(float) for _ in range(2))
    there, back = paired_difference(first, second, drawn), paired_difference(second, first, drawn)
    assert (there.mean, there.low, there.high) == pytest.approx((-back.mean, -back.high, -back.low))
    assert there.low <= there.mean <= there.high
    assert there.p_value == pytest.approx(back.p_value, nan_ok=True)


def test_equal_contenders_and_one_seed() -> None:
    scores = np.random.default_rng(4).integers(0, 2, (3, 20)).astype(float)
    same = paired_difference(scores, scores, resampling(3, 20))
    assert (same.mean, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    one = paired_difference(scores[:1], 1 - scores[:1], resampling(1, 20))
    assert math.isnan(one.p_value)
    assert math.isnan(one.detectable)


def test_scores_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="got shapes"):
        paired_difference(np.zeros((2, 3)), np.zeros((3, 2)), resampling(2, 3))
    with pytest.raises(ValueError, match="not finite"):
        paired_difference(np.full((2, 3), np.nan), np.zeros((2, 3)), resampling(2, 3))


def test_holm_by_hand() -> None:
    # sorted 0.01 0.02 0.04 with factors 3 2 1: 0.03, 0.04, max(0.04, 0.04); NaN is no member of the family
    assert holm([0.04, 0.01, math.nan, 0.02]) == pytest.approx([0.04, 0.03, math.nan, 0.04], nan_ok=True)
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_mcnemar_by_hand() -> None:
    # 5 : 1 of 6 discordant pairs, two-sided exact: 2·(1 + 6)/64
    first, second = np.array([1.0] * 5 + [0.0] + [1.0] * 4), np.array([0.0] * 5 + [1.0] + [1.0] * 4)
    found = McNemar.of(first, second)
    assert (found.only_first, found.only_second) == (5, 1)
    assert found.p_value == pytest.approx(14 / 64)
    assert McNemar.of(first, first).p_value == 1


def test_interquartile_mean_and_improvement() -> None:
    assert interquartile_mean([0.0, 1.0, 2.0, 9.0]) == 1.5
    assert interquartile_mean([0.0, 1.0, 5.0]) == 2
    # pairs (2, 1) > (2, 3) < (4, 1) > (4, 3) >: 3 of 4; ties half
    assert probability_of_improvement([2.0, 4.0], [1.0, 3.0]) == 0.75
    assert probability_of_improvement([1.0], [1.0]) == 0.5


def test_detectable_difference_is_seen_in_four_of_five_studies() -> None:
    rng, drawn = np.random.default_rng(5), resampling(5, 40, draws=300)
    plain = [rng.normal(0, 0.2, (5, 1)) + rng.normal(0, 1, (5, 40)) for _ in range(300)]
    zero = np.zeros((5, 40))
    detectable = float(np.mean([paired_difference(matrix, zero, drawn).detectable for matrix in plain]))
    seen = np.mean([paired_difference(matrix + detectable, zero, drawn).p_value < 0.05 for matrix in plain])
    assert 0.7 < seen < 0.9


@pytest.mark.parametrize(("seeds", "noise"), [(3, Noise()), (5, Noise()), (5, Noise(mean=3.0)), (5, Noise(seed=1.0))])
def test_false_calls_of_same_algorithms_under_several_names(seeds: int, noise: Noise) -> None:
    found = simulate(studies=400, seeds=seeds, questions=60, contenders=4, noise=noise, draws=200)
    assert found.studies.rate <= 0.07
    assert found.comparisons.rate <= 0.07


def test_real_differences_are_called() -> None:
    assert simulate(studies=40, seeds=5, questions=100, effect=2.0, draws=200).studies.rate > 0.9


def test_false_calls_command_prints_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["false-calls", "--studies", "20", "--seeds", "3", "--questions", "10"]) == 0
    printed = capsys.readouterr().out
    assert "false calls over 20 simulated studies of 4 contenders × 3 seeds × 10 questions" in printed
    assert "after Holm's correction" in printed


def test_an_a_a_study_is_not_distinguishable(tmp_path: Path) -> None:
    study = StudySettings(algorithms=("grpo",), seeds=(0, 1, 2), variants={"again.algorithm": "grpo"})
    recipe, jobs = load_study(finished_study(tmp_path, study))
    said = words(statistics_of(recipe, jobs))
    assert said[0].startswith("again − grpo: ")
    assert said[0].endswith("3 seeds × 40 questions): not distinguishable")
    assert said[1].startswith("With 3 seeds × 40 questions, the smallest difference detectable")


def test_words_follow_the_numbers(tmp_path: Path) -> None:
    study = StudySettings(algorithms=("a2tgpo", "grpo", "rloo"), seeds=(0, 1, 2, 3))
    skill = {"a2tgpo": 0.9, "grpo": 0.5, "rloo": 0.1}
    recipe, jobs = load_study(finished_study(tmp_path, study, skill=lambda label, _: skill[label], questions=200))
    found = statistics_of(recipe, jobs)
    better, worse, power = words(found)
    assert "better, p = " in better
    assert "worse, p = " in worse
    assert power.endswith(f"with 80 % power is {100 * found.detectable:.1f} points.")


def test_a_study_of_one_has_nothing_to_compare() -> None:
    assert words(Statistics("em", (), {}, (), {})) == ["One contender, so there is nothing to compare."]
    assert statistics_of(Recipe(study=StudySettings(algorithms=("grpo",))), []).comparisons == ()


def test_unequal_question_sets_are_compared_on_what_is_common(tmp_path: Path) -> None:
    study = StudySettings(algorithms=("a2tgpo", "grpo", "rloo"), seeds=(0, 1, 2))
    recipe, jobs = load_study(finished_study(tmp_path, study))

    def drop(run: str, lost: int) -> None:
        path = tmp_path / "made" / run / "evaluations" / "step-000010.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[lost:]))

    whole = statistics_of(recipe, jobs)
    drop("a2tgpo-s1", 2)
    drop("grpo-s0", 1)
    found = statistics_of(recipe, jobs)
    sizes = {comparison.contender: comparison for comparison in found.comparisons}
    assert (sizes["a2tgpo"].difference.questions, sizes["a2tgpo"].left_out) == (38, 2)
    assert (sizes["rloo"].difference.questions, sizes["rloo"].left_out) == (39, 1)
    assert found.lacking == {"a2tgpo-s1": 2, "grpo-s0": 1}
    assert "3 seeds × 38 questions, 2 left out that not all of these runs could play" in words(found)[0]
    assert words(found)[-1].startswith("Not every run could play every question (a2tgpo-s1 lacks 2, grpo-s0 lacks 1)")
    assert not whole.lacking
    assert [comparison.left_out for comparison in whole.comparisons] == [0, 0]


def test_won_and_lost_questions(tmp_path: Path) -> None:
    recipe, jobs = load_study(finished_study(tmp_path, StudySettings(algorithms=("a2tgpo", "grpo"), seeds=(0, 1))))
    results = results_of(jobs)
    [comparison] = statistics_of(recipe, jobs).comparisons
    questions = questions_of(results, comparison)
    assert len(questions) == 40
    for question in questions:
        name = question.row["question_id"]
        own, other = (sum(results[label][seed][name]["em"] for seed in (0, 1)) / 2 for label in ("a2tgpo", "grpo"))
        assert question.difference("em") == own - other
    mean = sum(question.difference("em") for question in questions) / 40
    assert mean == pytest.approx(comparison.difference.mean)
