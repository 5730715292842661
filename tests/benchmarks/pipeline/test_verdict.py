import pytest

from benchmarks.pipeline.rounds import Row, measure
from benchmarks.pipeline.timing import Timing
from benchmarks.pipeline.verdict import CEILING, COLD, EXTRACTION, UNIFORM, WARM, judge


def row(way, jobs_per_s, *, labels=(), engine_busy=0.5, host_busy=0.5):
    timing = Timing(jobs=10, began_s=0, ended_s=10 / jobs_per_s, labels=labels)
    return Row(way=way, timings=(timing,), jobs_per_s=jobs_per_s, engine_busy=engine_busy, host_busy=host_busy)


def verdicts(*rows, jobs_per_video=1):
    return {
        each.name: each for each in judge({row.way: row for row in rows}, jobs_per_video=jobs_per_video, warm_share=0.9)
    }


def test_a_cold_cache_is_held_against_the_slower_of_ceiling_and_extraction():
    rows = (row(CEILING, 10), row(EXTRACTION, 4), row(COLD, 3.8))

    by_extraction = verdicts(*rows)
    by_engine = verdicts(*rows, jobs_per_video=3)

    assert by_extraction[f"{COLD} / {EXTRACTION}"].ratio == pytest.approx(0.95)
    assert by_engine[f"{COLD} / {CEILING}"].ratio == pytest.approx(0.38)


@pytest.mark.parametrize(
    ("engine_busy", "host_busy", "said"),
    [
        pytest.param(0.6, 0.99, "host's cores are the limit", id="host"),
        pytest.param(0.99, 0.5, "engine's core has no time left", id="engine"),
        pytest.param(0.5, 0.5, "one waits for the other", id="neither"),
        pytest.param(None, None, "not bound", id="unknown"),
    ],
)
def test_what_is_missed_is_explained_by_who_was_busy(engine_busy, host_busy, said):
    warm = row(WARM, 5, engine_busy=engine_busy, host_busy=host_busy)

    [missed] = verdicts(row(CEILING, 10), warm).values()

    assert not missed.is_reached
    assert said in missed.limit


def test_what_is_reached_needs_no_explanation():
    [reached] = verdicts(row(UNIFORM, 2), row(WARM, 5)).values()

    assert reached.is_reached
    assert reached.limit == ""


def test_one_other_label_is_found():
    found = verdicts(row(COLD, 1, labels=(0, 1, 2, 3)), row(WARM, 1, labels=(0, 1, 2, 2)))

    assert not found["labels alike, warm and cold"].is_reached


class Recorded:
    """A way that writes down what is asked of it."""

    def __init__(self, name, calls):
        self._name, self._calls = name, calls

    def load(self):
        self._calls.append(f"load {self._name}")

    def run(self, number):
        self._calls.append(f"{self._name} {number}")
        return Timing(jobs=number, began_s=0, ended_s=1)

    def close(self):
        self._calls.append(f"close {self._name}")


class NothingBusy:
    def engine(self, _began_s, _ended_s):
        return None

    host = engine


def passes(*, together):
    calls = []
    ways = {name: Recorded(name, calls) for name in "ab"}
    rows = measure(ways, rounds=3, busy=NothingBusy(), say=lambda _text: None, together=together)
    assert [row.jobs_per_s for row in rows] == [2, 2]
    return calls


def test_ways_take_turns_within_a_round():
    assert passes(together=True) == [
        *("load a", "load b"),
        *("a 1", "b 1", "a 2", "b 2", "a 3", "b 3"),
        *("close b", "close a"),
    ]


def test_one_model_at_a_time_is_in_memory_where_no_more_fit():
    assert passes(together=False) == [
        *("load a", "a 1", "a 2", "a 3", "close a"),
        *("load b", "b 1", "b 2", "b 3", "close b"),
    ]
