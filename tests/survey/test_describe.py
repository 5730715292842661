"""Figures of a survey are read by people: in units that fit, with their intervals."""

import math

import pytest

from tasks.evaluation.scores import Estimate
from tasks.survey.describe import between, duration, figure, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (99_900, "99.9 kB"),
        (100_000, "100 kB"),
        (5.25e9, "5.2 GB"),
        (2e18, "2000 PB"),
    ],
)
def test_sizes_are_in_decimal_units(value, text):
    assert size(value) == figure(value, "bytes") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (59.94, "59.9 s"),
        (60, "1.0 min"),
        (3599, "60.0 min"),
        (5400, "1.5 h"),
        (86_400, "1.0 d"),
        (86_400_000, "1,000.0 d"),
        (math.inf, "inf s"),
    ],
)
def test_times_are_in_the_largest_unit_that_is_not_longer(value, text):
    assert duration(value) == figure(value, "s") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1500, "1,500"),
        (0.12345, "0.123"),
        (12.5, "12.5"),
        (99.96, "100"),
        (999.7, "1,000"),
        (1234.5, "1,234"),
    ],
)
def test_other_figures_have_three_digits_unless_they_are_whole(value, text):
    assert figure(value, "") == text


def test_only_what_was_estimated_has_an_interval():
    assert between(Estimate(value=90, low=90, high=90), duration) == "1.5 min"
    assert between(Estimate(value=90, low=60, high=120), duration) == "1.5 min (1.0 min to 2.0 min)"
