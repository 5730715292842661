import threading
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.domain import RunPhase, WallClockProfile

MADE_OF = st.dictionaries(st.sampled_from(RunPhase), st.dictionaries(st.sampled_from(RunPhase), st.floats(0, 1e9)))
PARTS = st.lists(st.tuples(st.sampled_from(RunPhase), st.floats(0, 1e5), st.floats(0, 1e5)), max_size=8)


def ledger_of(*instants_s):
    clock = iter(instants_s)
    return WallClockProfile(lambda: next(clock))


@given(
    st.floats(0, 1e9),
    PARTS,
    MADE_OF,
)
@example(0.0, [(RunPhase.SETUP, 0.0, 1.9375)], {RunPhase.SETUP: {RunPhase.SETUP: 5e-324}})
def test_the_parts_add_up_to_the_whole_whatever_happens(begin_s, done, made_of):
    waits_s = [wait_s for _, before_s, during_s in done for wait_s in (before_s, during_s)]
    instants = list(accumulate([begin_s, *waits_s, 0.0]))
    profile = ledger_of(*instants)

    for part, _, _ in done:
        with profile.doing(part):
            pass
    for part, parts in made_of.items():
        profile.split(part, parts)

    spent_ms = profile.spent_ms
    whole_ms = (instants[-1] - begin_s) * 1e3
    assert sum(spent_ms.values()) == pytest.approx(whole_ms, rel=1e-9, abs=1e-3)
    assert all(ms > 0 for ms in spent_ms.values())


def test_time_is_charged_to_the_stage_nearest_to_the_engine():
    profile = ledger_of(0, 1, 3, 6, 10, 15)

    with profile.doing(RunPhase.DATABASE), profile.doing(RunPhase.ANSWER):  # from 1 to 10, and from 3 to 6
        pass

    assert profile.spent_ms == {"schedule": 6000, "database": 6000, "answer": 3000}


def test_a_model_that_is_loaded_while_a_run_is_set_up_counts_as_its_start():
    profile = ledger_of(0, 0, 2, 7, 8, 8)

    with profile.doing(RunPhase.SETUP), profile.doing(RunPhase.LOAD):  # from 0 to 8, and from 2 to 7
        pass

    assert profile.spent_ms == {"setup": 3000, "engine start": 5000}


def test_a_part_is_divided_among_its_components():
    profile = ledger_of(0, 0, 1, 1)

    with profile.doing(RunPhase.DECODE):
        profile.split(RunPhase.DECODE, {RunPhase.FETCH: 1000, RunPhase.DECODE: 3000})

    assert profile.spent_ms == {"fetch": 250, "decode": 750}


def test_threads_doing_the_same_thing_are_charged_once():
    profile = WallClockProfile()
    gate = threading.Barrier(4)

    def answer():
        with profile.doing(RunPhase.ANSWER):
            gate.wait()
            gate.wait()

    threads = [threading.Thread(target=answer) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.wait()
    before_ms = profile.spent_ms
    after_ms = profile.spent_ms
    gate.wait()
    for thread in threads:
        thread.join()

    assert before_ms.keys() <= {"schedule", "answer"}
    assert after_ms.get("schedule", 0) == before_ms.get("schedule", 0)
    assert after_ms["answer"] > before_ms["answer"]


def test_laps_add_up_to_the_time_spent():
    profile = ledger_of(*range(0, 50, 5))

    laps = []
    for part in (RunPhase.DECODE, RunPhase.ANSWER, RunPhase.DECODE):
        with profile.doing(part):
            pass
        profile.split(RunPhase.ANSWER, {RunPhase.ANSWER: 1, RunPhase.PREPROCESS: len(laps)})
        laps.append(profile.lap())

    sums = {name: sum(lap.get(name, 0.0) for lap in laps) for lap in laps for name in lap}
    assert sums == pytest.approx(
        {
            RunPhase.SCHEDULE: 30_000,
            RunPhase.DECODE: 10_000,
            RunPhase.ANSWER: 5_000 / 3,
            RunPhase.PREPROCESS: 10_000 / 3,
        }
    )


def test_a_returned_lap_is_part_of_the_next_one():
    profile = ledger_of(*range(0, 40, 5))
    with profile.doing(RunPhase.DECODE):
        pass

    lost_ms = profile.lap()
    profile.uncharge(lost_ms)
    with profile.doing(RunPhase.ANSWER):
        pass
    lap_ms = profile.lap()

    assert lost_ms == {RunPhase.SCHEDULE: 10_000, RunPhase.DECODE: 5_000}
    assert lap_ms == {RunPhase.SCHEDULE: 20_000, RunPhase.DECODE: 5_000, RunPhase.ANSWER: 5_000}
