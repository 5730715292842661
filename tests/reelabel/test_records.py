"""Dataclasses as JSON and arrays: what was written is read back, and nothing else is taken."""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from reelabel.records import MAX_TEXT, arrays_of, from_json, to_json


class Size(NamedTuple):
    width: int
    is_tall: bool


@dataclass(frozen=True, kw_only=True)
class Inner:
    count: int
    times: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Record:
    number: int
    share: float
    name: str
    is_sound: bool
    kind: Literal["mp4", 1]
    rate: Fraction | None
    spans: tuple[tuple[int, int], ...]
    pair: tuple[int, float]
    size: Size
    inner: Inner
    pts: npt.NDArray[np.int64]
    shown: npt.NDArray[np.bool_] | None

    def __post_init__(self) -> None:
        if self.number == 13:
            raise ValueError("13 is no number")


GIVEN: dict[str, Any] = {
    "number": 7,
    "share": 0.5,
    "name": "clip",
    "is_sound": True,
    "kind": 1,
    "rate": Fraction(30000, 1001),
    "spans": ((0, 9), (20, 1)),
    "pair": (3, 1.5),
    "size": Size(640, is_tall=False),
    "inner": Inner(count=2, times=np.array([0.0, 0.5])),
    "pts": np.array([0, 512]),
    "shown": None,
}


def read_back(record, **changed):
    """Return a record that went through JSON, with some of its values changed on the way."""
    plain, arrays = to_json(record)
    return from_json(json.loads(json.dumps(plain)) | changed, Record, arrays)


def test_a_record_is_read_back():
    got = read_back(Record(**GIVEN))

    for name in GIVEN.keys() - {"inner", "pts"}:
        assert getattr(got, name) == GIVEN[name]
        assert type(getattr(got, name)) is type(GIVEN[name])
    assert (got.pts.tolist(), got.inner.times.tolist(), got.inner.count) == ([0, 512], [0.0, 0.5], 2)
    assert arrays_of(Record) == {"pts": np.int64, "inner.times": np.float64, "shown": np.bool_}


def test_what_may_be_none_may_be_something():
    some = GIVEN | {"rate": None, "shown": np.array([True, False])}

    got = read_back(Record(**some))

    assert (got.rate, got.shown.tolist()) == (None, [True, False])


def test_text_is_shortened_and_can_be_written_anywhere():
    assert read_back(Record(**GIVEN | {"name": "x" * (MAX_TEXT + 1)})).name == "x" * MAX_TEXT
    assert MAX_TEXT == 2000
    assert read_back(Record(**GIVEN | {"name": "caf\udce9\n"})).name == "caf??"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("number", 2**63 - 1, 2**63 - 1),
        ("number", -(2**63), -(2**63)),
        ("share", 3, 3.0),
        ("share", -1e300, -1e300),
        ("kind", "mp4", "mp4"),
        ("spans", [], ()),
        ("rate", "25", Fraction(25)),
        ("rate", "1234567890/1234567890", Fraction(1)),
        ("pair", [1, 2], (1, 2.0)),
    ],
)
def test_a_value_at_the_edge_of_its_type_is_taken(name, value, expected):
    got = getattr(read_back(Record(**GIVEN), **{name: value}), name)

    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("number", 2**63, "number: not a whole number of 64 bits"),
        ("number", -(2**63) - 1, "number: not a whole number of 64 bits"),
        ("number", True, "number: not a whole number of 64 bits"),
        ("number", 1.0, "number: not a whole number of 64 bits"),
        ("number", None, "number: not a whole number of 64 bits"),
        ("number", 13, "13 is no number"),
        ("share", float("nan"), "share: not a finite number"),
        ("share", float("inf"), "share: not a finite number"),
        ("share", 2**70, "share: not a finite number"),
        ("share", "1", "share: not a finite number"),
        ("name", 3, "name: not a str"),
        ("name", "x" * 2001, "name: not a text of at most 2,000 characters"),
        ("is_sound", 1, "is_sound: not a bool"),
        ("is_sound", "true", "is_sound: not a bool"),
        ("kind", "mkv", r"kind: not one of \('mp4', 1\)"),
        ("kind", True, r"kind: not one of \('mp4', 1\)"),
        ("rate", "1/0", "rate: not a fraction"),
        ("rate", "0.5", "rate: not a fraction"),
        ("rate", 2, "rate: not a Fraction"),
        ("spans", "ab", "spans: not a list"),
        ("spans", [[1]], "spans: not 2 values"),
        ("spans", [[1, 2, 3]], "spans: not 2 values"),
        ("pair", [1], "pair: not 2 values"),
        ("size", [640], "size: not 2 values"),
        ("size", [640, 1], "size: not a bool"),
        ("inner", [], "inner: not the fields of Inner"),
        ("inner", {"count": 2}, "inner: not the fields of Inner"),
        ("inner", {"count": "2", "times": None}, "inner: count: not a whole number"),
        ("inner", {"count": 2, "times": [0.0]}, "inner: times: not an array"),
        ("pts", [0, 1], "pts: not an array"),
        ("unknown", 1, "not the fields of Record"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(name, value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        read_back(Record(**GIVEN), **{name: value})


def test_an_array_that_was_left_out_is_missed_unless_it_may_be():
    plain, arrays = to_json(Record(**GIVEN | {"shown": np.array([True, True])}))
    plain = json.loads(json.dumps(plain))

    assert from_json(plain, Record, {name: array for name, array in arrays.items() if name != "shown"}).shown is None
    for name in ("pts", "inner.times"):
        with pytest.raises(ValueError, match="not an array"):
            from_json(plain, Record, {each: array for each, array in arrays.items() if each != name})
