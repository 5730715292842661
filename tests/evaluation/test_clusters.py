"""Intervals of means of values that are not independent within clusters."""

import numpy as np
import pytest

from tasks.evaluation.clusters import design_effect, design_effects, mean_interval, sum_variance, t_quantile

PAIRS = np.array([7, 7, 9, 9], np.uint64)
APART = np.arange(4, dtype=np.uint64)


def test_of_independent_values_the_interval_is_students():
    found = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), APART)

    # statistics.stdev of the values, over the root of their number, times the quantile of 3 degrees of freedom.
    assert (found.value, found.low, found.high) == pytest.approx((2.5, 2.5 - 2.0542603, 2.5 + 2.0542603))


def test_values_that_repeat_within_clusters_are_known_as_little_as_their_clusters():
    values = np.array([1.0, 1.0, 3.0, 3.0])

    found = mean_interval(values, PAIRS)

    # As of the values 1 and 3.
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - 12.7062047, 2 + 12.7062047))
    assert sum_variance(values - 2, PAIRS) == pytest.approx(16)
    assert t_quantile(PAIRS) == pytest.approx(12.7062047)


@pytest.mark.parametrize(
    ("values", "clusters", "effect"),
    [
        pytest.param([1, 1, 4, 4], PAIRS, 3, id="equal within clusters"),
        pytest.param([1, 1, 3, 3], APART, 1, id="independent"),
        pytest.param([1, 3, 1, 3], PAIRS, 1, id="opposite within clusters"),
        pytest.param([2, 2, 2, 2], PAIRS, 1, id="all equal"),
        pytest.param([5], APART[:1], 1, id="one"),
    ],
)
def test_the_design_effect_is_how_much_clusters_inflate_the_variance(values, clusters, effect):
    assert design_effect(np.array(values, np.float64), clusters) == pytest.approx(effect)


@pytest.mark.parametrize("clusters", [PAIRS[[0, 2, 1, 3, 0, 2]], np.arange(6, dtype=np.uint64), np.zeros(6, np.uint64)])
@pytest.mark.parametrize(
    "values", [[1, 0, -1, 1, 1, 0], [1] * 6, [0] * 6, [0, 0, 1, 1, -1, -1], [3, 1, 3, 1, 4, 5], [2, 2, 2, 1, -1, 3]]
)
def test_the_design_effects_of_more_and_more_values_are_those_of_each(values, clusters):
    numbers, counts = np.array(values, np.float64), range(1, len(values) + 1)

    expected = [design_effect(np.where(np.arange(6) < count, numbers, 0), clusters) for count in counts]
    assert design_effects(numbers, clusters).tolist() == pytest.approx(expected)
