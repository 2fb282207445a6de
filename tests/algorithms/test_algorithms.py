"""Credit of small groups worked out by hand, degenerate groups, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch

from a2tgpo.algorithms import (
    A2TGPO,
    ALGORITHMS,
    AT2PO,
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    IGPO,
    MTGRPO,
    RLOO,
    A2TGPOReleased,
    DeepSeekMathGRPO,
    DrGRPO,
    GiGPO,
    IGPOReleased,
    LossInputs,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    compute_loss,
)
from a2tgpo.algorithms.base import informative_groups
from a2tgpo.algorithms.dapo import overlong_penalty
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from tests.support.tables import NAN, make_table

ONE_SUCCESS = make_table([1, 0, 0, 0], [1, 1, 1, 1])


def rows(credit: torch.Tensor) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in credit.tolist()]


def test_grpo_divides_by_the_sample_deviation() -> None:
    # mean 1/4; Σ(x−μ)² = 9/16 + 3/16 = 3/4, over n−1 = 3: σ = 1/2. (1 − 1/4)/(1/2 + 1e-6) = 1.499997
    assert GRPO()(ONE_SUCCESS).advantage[:, 0].tolist() == pytest.approx(
        [1.499997, -0.499999, -0.499999, -0.499999], abs=2e-7
    )


def test_dr_grpo_only_centres() -> None:
    assert DrGRPO()(ONE_SUCCESS).advantage[:, 0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    # success: 1 − mean(0, 0, 0) = 1; failure: 0 − mean(1, 0, 0) = −1/3
    assert RLOO()(ONE_SUCCESS).advantage[:, 0].tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_at2po_divides_by_the_population_deviation() -> None:
    # σ² = 3/4 / 4 = 3/16, σ = .433013: .75/.433013 = 1.73205
    assert AT2PO()(ONE_SUCCESS).advantage[:, 0].tolist() == pytest.approx(
        [1.73205, -0.57735, -0.57735, -0.57735], abs=1e-5
    )


@pytest.mark.parametrize("preset", [GSPO, CISPO, DAPO, DeepSeekMathGRPO])
def test_presets_of_grpo_give_its_credit(preset: type[GRPO]) -> None:
    assert torch.equal(preset()(ONE_SUCCESS).advantage, GRPO()(ONE_SUCCESS).advantage)


def test_presets_differ_from_grpo_in_their_loss() -> None:
    assert (GSPO().loss.ratio, GSPO().loss.clip_low, GSPO().loss.clip_high, GSPO().loss.aggregation) == (
        "sequence",
        3e-4,
        4e-4,
        "seq-mean-token-mean",
    )
    assert (DAPO().loss.clip_low, DAPO().loss.clip_high, DAPO().loss.dual_clip) == (0.2, 0.28, 10.0)
    assert CISPO().loss.surrogate == "cispo"
    assert (AT2PO().loss.ratio, AT2PO().loss.aggregation) == ("turn", "seq-mean-token-mean")


PRESETS = {
    "a2tgpo": ("turn", 3e-3, 4e-3, None, "seq-mean-token-mean", "none", 0.0),
    "a2tgpo_released": ("turn", 3e-3, 4e-3, None, "token-mean", "none", 0.0),
    "igpo": ("token", 0.2, 0.2, None, "seq-mean-token-mean", "k3", 0.001),
    "igpo_released": ("token", 0.2, 0.2, 3.0, "seq-mean-token-sum", "k3", 0.001),
    "gigpo": ("token", 0.2, 0.2, None, "token-mean", "k3", 0.001),
    "grpo": ("token", 0.2, 0.2, None, "token-mean", "none", 0.0),
    "grpo_deepseekmath": ("token", 0.2, 0.2, None, "seq-mean-token-mean", "k3", 0.04),
    "dr_grpo": ("token", 0.2, 0.2, None, "seq-mean-token-sum-norm", "none", 0.0),
    "dapo": ("token", 0.2, 0.28, 10.0, "token-mean", "none", 0.0),
    "gspo": ("sequence", 3e-4, 4e-4, None, "seq-mean-token-mean", "none", 0.0),
}
"""Ratio, clip widths, dual clip, aggregation, distance and its coefficient."""


@pytest.mark.parametrize("name", PRESETS)
def test_losses_of_the_presets_are_the_published_ones(name: str) -> None:
    loss = ALGORITHMS[name]().loss
    found = (loss.ratio, loss.clip_low, loss.clip_high, loss.dual_clip, loss.aggregation, loss.kl, loss.kl_coefficient)
    assert found == PRESETS[name]


def test_credit_of_the_presets_is_the_published_one() -> None:
    assert (A2TGPO().ig_weight, A2TGPO().gain_measure, A2TGPO().clip_modulation) == (1.0, "logprob", 0.3)
    assert A2TGPOReleased().ig_weight == 0.3
    assert (IGPO().normalization, IGPO().gain_measure) == ("joint", "prob")
    assert (IGPOReleased().normalization, IGPOReleased().gain_measure) == ("separate", "logprob")
    assert (DAPO().generation_batch, DAPO().max_resamples, DAPO().overlong_factor) == (3, 10, 1.0)
    assert (GiGPO().state_similarity, GiGPO().gamma, GiGPO().step_weight) == (0.9, 0.95, 1.0)
    assert (DrGRPO().loss.divisor, DrGRPO().normalize_std) == (3000.0, False)


@pytest.mark.parametrize("rows", [8, 64])
def test_dr_grpo_divides_by_rows_and_a_constant(rows: int) -> None:
    """A = 1, 100 tokens a row, C = 3,000: −100/3000, whatever the size of the mini-batch."""
    zeros, mask = torch.zeros(rows, 100), torch.ones(rows, 100, dtype=torch.bool)
    turn = torch.zeros(rows, 100, dtype=torch.long)
    loss = compute_loss(DrGRPO().loss, LossInputs(zeros, zeros, zeros + 1, zeros + 1, turn, mask)).loss
    assert loss.item() == pytest.approx(-0.0333333, abs=1e-6)


def test_an_algorithm_reads_gains_in_its_own_measure() -> None:
    searched = Turn((1,), (2,), (0.0,), ActionKind.SEARCH, 0.0, 2.5, probability_gain=0.125)
    answered = Turn((1,), (2,), (0.0,), ActionKind.ANSWER, 1.0)
    episodes = [Episode(0, "q", 0, (searched, answered), 1.0, StopReason.ANSWERED)]
    for algorithm, gain in ((A2TGPO(), 2.5), (A2TGPO(gain_measure="prob"), 0.125), (IGPO(), 0.125), (GRPO(), 2.5)):
        assert algorithm.tabulate(episodes).information_gain[0, 0].item() == gain


# three episodes A (2 turns, success), B (1 turn), C (3 turns); all start in state 0, A's and C's second turns share
# state 1, C's third is alone
GIGPO_TABLE = make_table([1, 0, 0], [2, 1, 3], states=[[0, 1], [0], [0, 1, 2]])


def test_gigpo_with_statistics_over_turns() -> None:
    # episode term, rows (1, 1, 0, 0, 0, 0): μ = 1/3, σ = .516398 → 1.29099, −.64550.
    # step returns at state 0: (.95, 0, 0) → (1.15470, −.57735, −.57735); at state 1: (1, 0) → ±.70711; alone: 0
    credit = GiGPO(episode_statistics="turns")(GIGPO_TABLE).advantage
    torch.testing.assert_close(
        credit,
        torch.tensor([[2.44569, 1.99810, 0], [-1.22285, 0, 0], [-1.22285, -1.35260, -0.64550]]),
        atol=1e-5,
        rtol=0,
    )


def test_gigpo_with_statistics_over_trajectories() -> None:
    # episode term over outcomes (1, 0, 0): 1.15470, −.57735
    credit = GiGPO()(GIGPO_TABLE).advantage
    torch.testing.assert_close(
        credit,
        torch.tensor([[2.30940, 1.86181, 0], [-1.15470, 0, 0], [-1.15470, -1.28446, -0.57735]]),
        atol=2e-5,
        rtol=0,
    )


def test_gigpo_without_deviation() -> None:
    # over turns: episode term 2/3, −1/3; step term at state 0: .95·(2/3, −1/3, −1/3), at state 1: ±1/2
    credit = GiGPO(normalize_std=False, episode_statistics="turns")(GIGPO_TABLE).advantage
    torch.testing.assert_close(
        credit, torch.tensor([[1.3, 1.16667, 0], [-0.65, 0, 0], [-0.65, -0.83333, -0.33333]]), atol=1e-5, rtol=0
    )


def test_gigpo_compares_equal_states_within_a_question_only() -> None:
    table = make_table([1, 0], [1, 1], group=[0, 1], states=[[5], [5]])
    assert GiGPO()(table).advantage.tolist() == [[0], [0]]


IGPO_TABLE = make_table([1, 0], [3, 2], gains=[[0.2, -0.1], [0.08]])


def test_igpo_separate() -> None:
    # gains (.2, −.1, .08): μ = .06, σ_p = .123288 → (1.13554, −1.29776, .16222); outcomes → (1, −1). Accumulated from
    # behind with γ = 1:
    assert rows(IGPOReleased()(IGPO_TABLE).advantage) == [
        pytest.approx([0.83778, -0.29776, 1.0], abs=2e-4),
        pytest.approx([-0.83778, -1.0, 0], abs=2e-4),
    ]


def test_igpo_joint() -> None:
    # one pool (.2, −.1, 1, .08, 0): μ = .236, σ_p = .394441 → (−.09127, −.85184, 1.93692, −.39550, −.59831)
    credit = IGPO()(IGPO_TABLE).advantage
    torch.testing.assert_close(
        credit, torch.tensor([[0.99381, 1.08508, 1.93691], [-0.99381, -0.59831, 0]]), atol=1e-4, rtol=0
    )


def test_igpo_weights_act_under_joint_only() -> None:
    for normalization, cancels in (("separate", True), ("joint", False)):
        plain = IGPO(normalization=normalization)(IGPO_TABLE).advantage
        weighted = IGPO(normalization=normalization, gain_weight=0.5, outcome_weight=2.0)(IGPO_TABLE).advantage
        assert torch.allclose(weighted, plain, atol=1e-3) == cancels


def test_igpo_keeps_a_turn_whose_normalised_reward_is_zero() -> None:
    # the middle gain is the mean: z = 0, but the turn keeps its own accumulated credit
    table = make_table([1, 0], [4, 1], gains=[[0.1, 0.2, 0.3], []])
    assert rows(IGPO(gamma=0.5, normalization="separate")(table).advantage)[0] == pytest.approx(
        [-1.22474 + 0.25 * 1.22474 + 0.125, 0.5 * 1.22474 + 0.25, 1.22474 + 0.5, 1.0], abs=1e-3
    )


A2TGPO_TABLE = make_table([1, 0, 0], [3, 2, 3], gains=[[0.30, 0.10], [0.05], [-0.10, 0.20]])


def test_a2tgpo_advantage() -> None:
    # z at turn 0 over (.30, .05, −.10): μ = .08333, σ_p = .16499 → (1.3132, −.2020, −1.1112); at turn 1 over (.10,
    # .20): −1, 1. z^R over (1, 0, 0): 1.41421, −.70711. A_{0,0} = (1.3132 − 1)/√2 + 1.41421 = 1.63568; A_{0,1} =
    # −1 + 1.41421
    credit = A2TGPO()(A2TGPO_TABLE).advantage
    expected = torch.tensor([[1.63568, 0.41423, 1.41421], [-0.90913, -0.70711, 0], [-0.78571, 0.29287, -0.70711]])
    torch.testing.assert_close(credit, expected, atol=5e-5, rtol=0)
    # the launch script's weight takes .3 of what the gain adds to z^R
    weighted = torch.tensor([[1.48065, 1.11422, 1.41421], [-0.76771, -0.70711, 0], [-0.73069, -0.40711, -0.70711]])
    torch.testing.assert_close(A2TGPO(ig_weight=0.3)(A2TGPO_TABLE).advantage, weighted, atol=5e-5, rtol=0)


def test_a2tgpo_clip_scale() -> None:
    # c = 1 + .3·(2·sigmoid(z) − 1); sigmoid(1.3132) = .78806 → 1.17283
    expected = torch.tensor([[1.17283, 0.86137, 1], [0.96980, 1, 1], [0.84859, 1.13863, 1]])
    torch.testing.assert_close(A2TGPO()(A2TGPO_TABLE).clip_scale, expected, atol=5e-5, rtol=0)


def test_a2tgpo_discounts_over_turns_with_a_gain() -> None:
    # a turn without a gain lies between the two gains, and costs no discount; z = (1, ·, 1) against (−1, ·, −1)
    table = make_table([1, 1], [4, 4], gains=[[0.2, NAN, 0.3], [0.1, NAN, 0.1]])
    first = A2TGPO(gamma=0.5, ig_weight=1.0)(table).advantage[0].tolist()
    assert first == pytest.approx([(1 + 0.5) / math.sqrt(2), 0, 1, 0], abs=1e-3)


def test_a2tgpo_ablations() -> None:
    base = A2TGPO()(A2TGPO_TABLE)
    outcome_only = A2TGPO(ig_weight=0.0)(A2TGPO_TABLE)
    assert torch.allclose(outcome_only.advantage, AT2PO()(A2TGPO_TABLE).advantage)
    assert torch.equal(outcome_only.clip_scale, base.clip_scale)
    assert bool((A2TGPO(clip_modulation=0.0)(A2TGPO_TABLE).clip_scale == 1).all())
    # without √n the first of two gains keeps the whole sum: 1.3132 − 1 + 1.41421
    assert A2TGPO(variance_rescaling=False)(A2TGPO_TABLE).advantage[0, 0].item() == pytest.approx(
        1.41421 + 0.3132, abs=1e-4
    )
    # one pool (.30, .10, .05, −.10, .20): μ = .11, σ_p = .135647; the last gain of episode 0 is (.10 − .11)/.135647
    assert A2TGPO(turn_groups=False)(A2TGPO_TABLE).advantage[0, 1].item() == pytest.approx(1.41421 - 0.07372, abs=1e-4)


def test_a2tgpo_released_departures() -> None:
    # two episodes, three searches each; the first gain is never measured, so ordinal 0 is the second search. Second
    # gains (.4, .2) → z = ±1; the third gain of episode 1 is exactly 0 and dropped, so that of episode 0 is alone: z =
    # 0. Outcomes equal: z^R = 0.
    table = make_table([1, 1], [4, 4], gains=[[9.0, 0.4, 0.3], [-9.0, 0.2, 0.0]])
    credit = A2TGPOReleased(ig_weight=1.0)(table)
    # the first segment covers two searches; D/√2 for episode 0 (two gains kept), D for episode 1
    assert rows(credit.advantage) == [
        pytest.approx([0.70711, 0.70711, 0, 0], abs=1e-3),
        pytest.approx([-1, -1, 0, 0], abs=1e-3),
    ]
    assert credit.clip_scale[0].tolist() == pytest.approx([1.13863, 1.13863, 1, 1], abs=1e-3)
    assert A2TGPOReleased().loss.merge_equal_turns


def test_a2tgpo_released_without_its_departures_is_a2tgpo() -> None:
    faithful = A2TGPOReleased(ig_weight=1.0, skip_first_search=False, drop_zero_gain=False, final_gain_in_outcome=False)
    got, expected = faithful(A2TGPO_TABLE), A2TGPO()(A2TGPO_TABLE)
    assert torch.equal(got.advantage, expected.advantage)
    assert torch.equal(got.clip_scale, expected.clip_scale)


def test_a2tgpo_released_adds_the_gain_of_a_cut_episode_to_its_outcome() -> None:
    table = make_table([0, 0], [2, 2], gains=[[0.1, 0.5], [0.1]])
    # outcomes .5 and 0 → z^R = ±1
    assert rows(A2TGPOReleased()(table).advantage) == [
        pytest.approx([1, 1], abs=1e-3),
        pytest.approx([-1, -1], abs=1e-3),
    ]


def test_mt_grpo_rewards_turns_up_to_the_first_search() -> None:
    # outcomes (1, 0, 0): (1.15470, −.57735, −.57735); first gains of the two that searched (.4, .2) → ±.70711; ε =
    # 1e-4. the third never searched: normalised sum over (1.4, .2, 0): μ = .53333, σ = .75719 → −.70436
    table = make_table([1, 0, 0], [3, 2, 1], gains=[[0.4, 0.1], [0.2], []])
    expected = [[1.8607, 1.1546, 1.1546], [-1.2834, -0.5773, 0], [-0.7043, 0, 0]]
    torch.testing.assert_close(MTGRPO()(table).advantage, torch.tensor(expected), atol=1e-3, rtol=0)


def test_reinforce_plus_plus_whitens_over_tokens() -> None:
    # three tokens of return 1 and one of 0: μ = 3/4, σ² = (3·1/16 + 9/16)/3 = 1/4 → (1/2, −3/2)
    table = make_table([1, 0], [1, 1], num_tokens=[[3], [1]])
    assert ReinforcePlusPlus()(table).advantage[:, 0].tolist() == pytest.approx([0.5, -1.5], abs=1e-5)


def test_reinforce_plus_plus_carries_the_return_back_unchanged() -> None:
    table = make_table([1, 0], [3, 1])
    assert len(set(ReinforcePlusPlus()(table).advantage[0].tolist())) == 1


def test_reinforce_plus_plus_baseline_centres_within_the_group_first() -> None:
    # centred: (1/2, −1/2) and (1/4, −1/4); μ = 0, σ² = (1/4 + 1/4 + 1/16 + 1/16)/3 = .208333
    table = make_table([1, 0, 1, 0.5], [1, 1, 1, 1], group=[0, 0, 1, 1])
    expected = [value / math.sqrt(0.2083333) for value in (0.5, -0.5, 0.25, -0.25)]
    assert ReinforcePlusPlusBaseline()(table).advantage[:, 0].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("length", "penalty"), [(1, 0), (16384, 0), (18432, -0.5), (20480, -1), (30000, -3.32422)])
def test_dapo_overlong_penalty(length: int, penalty: float) -> None:
    assert overlong_penalty(torch.tensor([length]), 20480, 4096, 1.0).item() == pytest.approx(penalty, abs=1e-5)


def test_dapo_lowers_the_credit_of_overlong_episodes_but_resamples_on_the_raw_outcome() -> None:
    table = make_table([1, 1], [1, 1], num_tokens=[[8], [10]])
    dapo = DAPO(max_tokens=10, overlong_buffer=4)
    assert dapo(table).advantage[0].item() > 0 > dapo(table).advantage[1].item()
    assert dapo.is_informative(table).tolist() == [False]
    assert dapo.max_resamples == 10


def test_informative_groups_differ_in_outcome_or_hold_one_episode() -> None:
    group, outcome = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    everyone = torch.ones(5, dtype=torch.bool)
    assert informative_groups(outcome, group, everyone).tolist() == [True, False, True]
    # without the first episode group 0 has one left, and without the third group 2 has none
    assert informative_groups(outcome, group, torch.tensor([False, True, False, True, True])).tolist() == [
        True,
        False,
        False,
    ]


def test_grpo_group_of_one_raw_as_in_verl() -> None:
    table = make_table([1, 1, 0], [1, 1, 1], group=[0, 1, 1])
    assert GRPO()(table).advantage[0].item() == 0
    assert GRPO(singleton="raw")(table).advantage[0].item() == 1


def test_gigpo_similar_states_count_as_one() -> None:
    def episode(group: int, outcome: float, state: str) -> Episode:
        return Episode(
            group,
            "q",
            0,
            (Turn((1,), (2,), (0.0,), ActionKind.ANSWER, outcome, None, state),),
            outcome,
            StopReason.ANSWERED,
        )

    base = "The river Elbe rises in the mountains of Bohemia."
    episodes = [
        episode(0, 1.0, base),
        episode(0, 0.0, base.replace("mountains", "mountain")),
        episode(1, 0.0, base),
        episode(0, 0.0, "Something else."),
    ]
    assert GiGPO().tabulate(episodes).state.flatten().tolist() == [0, 0, 0, 1]
    assert GiGPO(state_similarity=1.0).tabulate(episodes).state.flatten().tolist() == [0, 1, 0, 2]
    # another question's state is another state, however similar
    apart = [episodes[0], episode(1, 0.0, base.replace("mountains", "mountain"))]
    assert GiGPO().tabulate(apart).state.flatten().tolist() == [0, 1]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_its_defaults_and_names_unknown_parameters(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    credit = algorithm(A2TGPO_TABLE)
    assert credit.advantage.shape == credit.clip_scale.shape == credit.weight.shape == A2TGPO_TABLE.mask.shape
    with pytest.raises(
        ValueError, match=r"got unknown parameter 'max_resample', expected one of .*did you mean 'max_resamples'"
    ):
        ALGORITHMS[name](max_resample=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: A2TGPO(gamma=1.5), r"A2TGPO.gamma: got 1.5, expected a number from 0 to 1"),
        (lambda: A2TGPO(gamma=NAN), r"A2TGPO.gamma: got nan"),
        (lambda: A2TGPO(ig_weight=-1.0), r"A2TGPO.ig_weight: got -1.0, expected a number of at least 0"),
        (lambda: A2TGPO(clip_modulation=2.0), r"A2TGPO.clip_modulation: got 2.0"),
        (
            lambda: IGPO(normalization="seperate"),
            r"IGPO.normalization: got 'seperate', expected one of separate, joint; did you mean 'separate'",
        ),
        (
            lambda: GiGPO(episode_statistics="rows"),
            r"GiGPO.episode_statistics: got 'rows', expected one of trajectories, turns",
        ),
        (lambda: GiGPO(state_similarity=0.0), r"GiGPO.state_similarity: got 0, expected more"),
        (lambda: A2TGPO(clip_modulation=1.0), r"A2TGPO.clip_modulation: got 1, expected less"),
        (
            lambda: IGPO(gain_measure="probability"),
            r"IGPO.gain_measure: got 'probability', expected one of logprob, prob; did you mean 'prob'",
        ),
        (lambda: GRPO(generation_batch=0), r"GRPO.generation_batch: got 0, expected a whole number of at least 1"),
        (lambda: GRPO(singleton="one"), r"GRPO.singleton: got 'one', expected one of zero, raw"),
        (lambda: DAPO(overlong_buffer=5, max_tokens=4), r"DAPO.overlong_buffer: got 5, expected at most max_tokens"),
        (lambda: DAPO(max_resamples=-1), r"DAPO.max_resamples: got -1, expected a whole number of at least 0"),
    ],
)
def test_bad_parameters_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": torch.tensor([1.0, NAN, 0.0])}, r"TurnTable.outcome: got nan at index \[1\], expected finite"),
        ({"group": torch.tensor([0, 2, 2])}, r"TurnTable.group: group ids \[1\] have no episode"),
        ({"scored": torch.ones(3, 3, dtype=torch.bool)}, r"TurnTable.information_gain: got nan at index \[0, 2\]"),
        ({"mask": torch.tensor([[True, False, True]] * 3)}, r"TurnTable.(mask|scored)"),
    ],
)
def test_bad_tables_are_refused(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(A2TGPO_TABLE, **changes)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        # gains -0.001, 0, 0.001 in one turn group: σ = √(2e-6/3 + 1e-8) = .000823
        (A2TGPO(ig_weight=1.0), 1.2142),
        (A2TGPO(ig_weight=1.0, gain_floor=0.05), 0.02),  # 0.001 / 0.05
        (IGPO(gain_measure="logprob", normalization="separate"), 1.2142),
        (IGPO(gain_measure="logprob", normalization="separate", gain_floor=0.05), 0.02),
    ],
)
def test_a_floor_keeps_rounding_from_becoming_credit(algorithm: A2TGPO | IGPO, expected: float) -> None:
    table = make_table([1, 1, 1], [2, 2, 2], [[-0.001], [0.0], [0.001]])
    credit = algorithm(table)
    assert credit.advantage[:, 0].tolist() == pytest.approx([-expected, 0.0, expected], rel=1e-3)
    with pytest.raises(ValueError, match="gain_floor"):
        replace(algorithm, gain_floor=-1.0)
