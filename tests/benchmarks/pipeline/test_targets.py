import pytest

from benchmarks.pipeline.contender import (
    CEILING,
    COLD,
    EXTRACTION,
    WARM,
    Result,
    Timing,
    check_targets,
    measure,
    results_table,
)


def result(contender, jobs_per_s, *, labels=()):
    timing = Timing(jobs=10, began_s=0, ended_s=10 / jobs_per_s, labels=labels)
    return Result(contender, (timing,), engine_busy=0.5, host_busy=0.5)


def targets(*results):
    named = {each.contender: each for each in results}
    return {each.name: each for each in check_targets(named, warm_share=0.9)}


def test_a_cold_cache_is_compared_with_the_slower_of_ceiling_and_extraction():
    by_extraction = targets(result(CEILING, 10), result(EXTRACTION, 4), result(COLD, 3.8))
    by_engine = targets(result(CEILING, 10), result(EXTRACTION, 12), result(COLD, 3.8))

    assert by_extraction[f"{COLD} / {EXTRACTION}"].value == pytest.approx(0.95)
    assert by_engine[f"{COLD} / {CEILING}"].value == pytest.approx(0.38)


def test_a_single_differing_label_is_found():
    found = targets(result(COLD, 1, labels=(0, 1, 2, 3)), result(WARM, 1, labels=(0, 1, 2, 2)))

    assert not found["equal labels, warm and cold"].is_met


class Recorded:
    """A contender that records its calls."""

    def __init__(self, name, calls):
        self._name, self._calls = name, calls

    def load(self):
        self._calls.append(f"load {self._name}")

    def run(self, number):
        self._calls.append(f"{self._name} {number}")
        return Timing(jobs=number, began_s=0, ended_s=1)

    def close(self):
        self._calls.append(f"close {self._name}")


class UnknownUtilization:
    def engine(self, _began_s, _ended_s):
        return None

    host = engine


def test_contenders_take_turns_within_a_round():
    calls = []

    results = measure(
        {name: Recorded(name, calls) for name in "ab"},
        rounds=3,
        utilization=UnknownUtilization(),
        on_progress=lambda _text: None,
    )

    assert [each.jobs_per_s for each in results.values()] == [2, 2]
    assert calls == [
        *("load a", "load b"),
        *("a 1", "b 1", "a 2", "b 2", "a 3", "b 3"),
        *("close b", "close a"),
    ]


def test_rates_are_compared_with_the_ceiling():
    table = results_table("t", {each.contender: each for each in (result(CEILING, 10), result(WARM, 5))})

    assert [row["of_ceiling"] for row in table.rows] == [1, 0.5]
