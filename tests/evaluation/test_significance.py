import numpy as np
import pytest

from tasks.evaluation.significance import Z, adjust_by_holm, paired_difference, proportion


def test_the_interval_of_a_share_is_wilsons():
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", method 3.
    share = proportion(81, 263)

    assert (share.value, share.low, share.high) == pytest.approx((0.3080, 0.2553, 0.3662), abs=5e-5)


def test_an_interval_has_a_width_even_if_every_answer_is_correct():
    assert proportion(20, 20).high == 1
    assert 0.8 < proportion(20, 20).low < 0.9
    same = paired_difference(np.full(20, fill_value=True), np.full(20, fill_value=True))
    assert -0.2 < same.low < 0 < same.high < 0.2


def test_the_interval_of_a_paired_difference_is_tangos():
    same, fewer = np.full(44, fill_value=True), np.repeat([False, True], [1, 43])

    agreeing, losing = paired_difference(same, same), paired_difference(fewer, same)

    # Without a difference, the score equation has the solutions -z**2 / (n + z**2) and its opposite.
    assert (agreeing.low, agreeing.high) == pytest.approx((-(Z**2) / (44 + Z**2), Z**2 / (44 + Z**2)))
    assert losing.low == pytest.approx(-0.1181, abs=1e-4)
    assert losing.low < losing.value < 0 < losing.high < agreeing.high


@pytest.mark.parametrize(
    ("both", "gained", "lost", "neither", "p_value"),  # statsmodels.stats.contingency_tables.mcnemar, exact
    [(101, 59, 121, 33, 4.4344492637551645e-06), (14, 5, 0, 22, 0.0625), (10, 15, 5, 20, 0.04138946533203125)],
)
def test_a_paired_difference_matches_the_exact_mcnemar_test(both, gained, lost, neither, p_value):
    first = np.repeat([True, True, False, False], [both, gained, lost, neither])
    second = np.repeat([True, False, True, False], [both, gained, lost, neither])

    got = paired_difference(first, second)

    assert got.p_value == pytest.approx(p_value)
    assert (got.jobs, got.gained, got.lost) == (len(first), gained, lost)
    assert got.value == pytest.approx(first.mean() - second.mean())
    assert got.low < got.value < got.high


def test_specs_that_agree_on_every_job_do_not_differ_significantly():
    answers = np.array([True, False, True])

    assert paired_difference(answers, answers).p_value == 1


def test_swapping_the_specs_negates_the_difference():
    first, second = np.array([True] * 9 + [False] * 4), np.array([True] * 5 + [False] * 8)

    one, other = paired_difference(first, second), paired_difference(second, first)

    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
    assert one.p_value == other.p_value


def test_holms_adjustment_keeps_the_given_order():
    # statsmodels.stats.multitest.multipletests, method="holm".
    assert adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_by_holm([0.5, 0.9]) == [1, 1]
    assert adjust_by_holm([]) == []
