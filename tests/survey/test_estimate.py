import numpy as np
import pytest

from tasks.survey.clips import estimate_share, estimate_total

OF, SEEN, ROUNDS = 2000, 120, 400


def drawn(values):
    random = np.random.default_rng(5)
    return [values[random.choice(OF, SEEN, replace=False)] for _ in range(ROUNDS)]


def test_what_was_looked_at_in_full_has_no_interval():
    assert estimate_share(26, 100, 100).is_exact
    assert estimate_share(26, 100, 100).value == 26
    assert estimate_total([1.5, 2.5], 2).is_exact


@pytest.mark.parametrize("share", [0.01, 0.26, 0.9])
def test_intervals_of_shares_hold_the_truth_as_often_as_they_say(share):
    has = np.arange(OF) < share * OF

    found = [estimate_share(int(sample.sum()), SEEN, OF) for sample in drawn(has)]

    assert np.mean([each.low <= has.sum() <= each.high for each in found]) >= 0.92
    assert np.mean([each.value for each in found]) == pytest.approx(has.sum(), rel=0.1)


def test_intervals_of_totals_hold_the_truth_as_often_as_they_say():
    sizes = np.random.default_rng(1).lognormal(3, 0.7, OF)

    found = [estimate_total(sample, OF) for sample in drawn(sizes)]

    assert np.mean([each.low <= sizes.sum() <= each.high for each in found]) >= 0.91


@pytest.mark.parametrize("found", [0, 7, 30])
def test_an_interval_contains_what_was_seen(found):
    estimate = estimate_share(found, 30, 1_000_000)

    assert found <= estimate.low <= estimate.value <= estimate.high <= 1_000_000 - (30 - found)


def test_one_clip_of_many_tells_no_total():
    assert estimate_total([5.0], 100) is None


def test_the_standard_error_is_that_of_a_sample_of_few_clips():
    share, total = estimate_share(10, 50, 99), estimate_total([1.0, 2.0, 3.0], 6)

    # Wilson's interval of 20 of 100 (scipy.stats.binomtest), as exact as 10 of 50 if all are 99.
    assert (share.value, share.low, share.high) == pytest.approx((99 * 0.2, 99 * 0.13336691, 99 * 0.28882920))
    # 6 times the mean, with a variance of 1 and half of the clips seen.
    assert (total.value, total.low, total.high) == pytest.approx((12, 12 - 4.80091, 12 + 4.80091), rel=1e-5)
    assert estimate_total([5.0, 0.0], 3).low == 5
    assert estimate_total([], 0) is None
