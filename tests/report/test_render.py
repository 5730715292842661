"""Figures on pages are read by people: in units that fit, with axes of round numbers."""

from datetime import UTC, datetime

import pytest

from tasks.evaluation.scores import Estimate
from tasks.report.render import clock, duration, environment


def rendered(expression, **values):
    return environment().from_string("{{ " + expression + " }}").render(values)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.94, "59.9 s"), (60, "1.0 min"), (3599, "60.0 min"), (3600, "1.0 h"), (9000, "2.5 h")],
)
def test_durations_are_in_the_largest_unit_that_is_not_longer(seconds, text):
    assert duration(seconds) == rendered("seconds | duration", seconds=seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00.0"), (59.96, "1:00.0"), (123.44, "2:03.4"), (3599.9, "59:59.9"), (3723.4, "1:02:03.4")],
)
def test_times_in_a_video_are_those_of_a_clock(seconds, text):
    assert clock(seconds) == rendered("seconds | clock", seconds=seconds) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1234 | count", "1,234"),
        ("1 | counted('job')", "1 job"),
        ("1234 | counted('job')", "1,234 jobs"),
        ("0.1234 | percent", "12.3%"),
        ("0.00001 | percent", "&lt;0.1%"),
        ("0 | percent", "0.0%"),
        ("0.9996 | percent", "&gt;99.9%"),
        ("1 | percent", "100.0%"),
        ("999.94 | ms", "999.9"),
        ("1000.6 | ms", "1,001"),
        ("0.1234 | points", "+12.3"),
        ("-0.0567 | points", "-5.7"),
        ("none | value", "none"),
        ("999 | short", "999"),
        ("1000 | short", "1k"),
        ("2500000 | short", "2.5M"),
        ('"it\'s" | quoted', "&#39;it&#39;&#34;&#39;&#34;&#39;s&#39;"),
        ("'a b' | job_link(['a b'])", '<a href="#job-a%20b">a b</a>'),
        ("'a b' | job_link([])", "a b"),
        ("at(0, 8)", "1%"),
        ("at(2, 8)", "25.5%"),
        ("at(8, 8)", "99%"),
        ("at(0, 0)", "1%"),
        ("at(1, 3, 10, 40)", "20%"),
        ("count_ticks(0)", "[0, 1]"),
        ("count_ticks(4)", "[0, 1, 2, 3, 4]"),
        ("count_ticks(7)", "[0, 2, 4, 6, 8]"),
        ("count_ticks(81)", "[0, 50, 100]"),
    ],
)
def test_figures_are_written_for_people(expression, text):
    assert rendered(expression) == text


@pytest.mark.parametrize(
    ("end_s", "start_s", "texts"),
    [
        (0.5, 0, ["0 s"]),
        (8, 0, [f"{at} s" for at in range(9)]),
        (9, 0, ["0 s", "2 s", "4 s", "6 s", "8 s"]),
        (119, 100, ["100 s", "105 s", "110 s", "115 s"]),
        (480, 0, [f"{at} min" for at in range(9)]),
        (210, 200, [f"{at} s" for at in range(200, 211, 2)]),
        (7260, 7200, ["120 min", "120.2 min", "120.3 min", "120.5 min", "120.7 min", "120.8 min", "121 min"]),
        (7200, 3600, ["1 h", "1.2 h", "1.3 h", "1.5 h", "1.7 h", "1.8 h", "2 h"]),
        (864_000, 0, [f"{at * 30} h" for at in range(9)]),
    ],
)
def test_an_axis_of_time_has_at_most_nine_round_marks_within_it(end_s, start_s, texts):
    ticks = environment().globals["time_ticks"](end_s, start_s)

    assert [text for _, text in ticks] == texts
    assert all(start_s <= at_s <= end_s for at_s, _ in ticks)


def test_intervals_are_in_percent_or_points():
    found = Estimate(value=0.5, low=0.4321, high=0.5678)

    assert rendered("found | interval", found=found) == "43.2% to 56.8%"
    assert rendered("found | interval_points", found=found) == "+43.2 to +56.8"


def test_a_moment_is_to_the_minute():
    assert rendered("at | moment", at=datetime(2026, 11, 1, 9, 5, 59, tzinfo=UTC)) == "2026-11-01 09:05 UTC"
