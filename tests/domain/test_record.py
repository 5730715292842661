from dataclasses import dataclass

import pytest

from tasks.domain.record import (
    Merge,
    RecordColumn,
    column,
    columns_of,
    merge_records,
    merged,
    names_of,
    reader_of,
    values_of,
    without_sums,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    stops: int = column(Merge.SUM, "How many.", default=0, bits=16)
    start: str = column(Merge.LAST, "Where from.", name="started_at")
    end: str | None = column(Merge.LAST, "Where to.", default=None)
    map: tuple[int, ...] = merged(Merge.SUM, default=())


def test_columns_are_those_of_the_fields_that_declare_one():
    assert columns_of(Trip) == (
        RecordColumn(name="stops", attribute="stops", type=int, bits=16, description="How many."),
        RecordColumn(name="started_at", attribute="start", type=str, bits=32, description="Where from."),
        RecordColumn(name="end", attribute="end", type=str, bits=32, description="Where to."),
    )
    assert reader_of(Trip)(Trip(stops=2, start="here")) == (2, "here", None)


def test_a_missing_record_is_nulls_in_all_its_columns():
    assert names_of(Trip, Trip) == ("stops", "started_at", "end") * 2
    assert values_of(Trip, None) == (None, None, None)
    assert values_of(Trip, Trip(start="here")) == (0, "here", None)


def test_a_copy_has_no_sums():
    copied = without_sums(Trip(stops=2, start="here", end="there"))

    assert (copied.stops, copied.start, copied.end) == (0, "here", "there")


def test_each_field_is_merged_by_its_own_rule():
    first, second = Trip(stops=2, start="here", end="there", map=(1,)), Trip(stops=3, start="there", map=(2, 3))

    assert merge_records(first, second) == Trip(stops=5, start="there", end=None, map=(1, 2, 3))


def test_a_field_without_a_rule_is_an_error():
    @dataclass(frozen=True)
    class Longer(Trip):
        hours: float = 0.0

    one = Longer(start="here")

    with pytest.raises(TypeError, match=r"Longer\.hours does not say how to merge"):
        merge_records(one, one)
    with pytest.raises(TypeError, match=r"Longer\.hours does not say how to merge"):
        columns_of(Longer)


@pytest.mark.parametrize("unfit", [tuple[float, ...], int | str, None, bytes])
def test_a_type_that_no_column_stores_is_an_error(unfit):
    @dataclass(frozen=True)
    class Longer(Trip):
        odd: unfit = column(Merge.LAST, "Odd.", default=None)

    with pytest.raises(TypeError, match=r"Longer\.odd is a .*; a column stores a str, bool, int, float or Json"):
        columns_of(Longer)
