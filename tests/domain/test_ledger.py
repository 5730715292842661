from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain import Part, TimeLedger

WAITS = st.dictionaries(st.sampled_from(Part), st.floats(0, 1e9))


@given(st.floats(0, 1e9), st.lists(st.tuples(st.floats(0, 1e5), st.sampled_from(Part), WAITS)))
def test_the_parts_add_up_to_the_whole_whatever_is_charged(begin_s, charges):
    instants = list(accumulate([begin_s, *(wait_s for wait_s, _, _ in charges)]))
    clock = iter(instants)
    ledger = TimeLedger(lambda: next(clock))

    for _, part, known_ms in charges:
        ledger.charge(part, known_ms)

    whole_ms = (instants[-1] - begin_s) * 1e3
    assert sum(ledger.spent_ms.values()) == pytest.approx(whole_ms, rel=1e-9, abs=1e-3)
    assert all(ms > 0 for ms in ledger.spent_ms.values())


def ledger_of(*instants_s):
    clock = iter(instants_s)
    return TimeLedger(lambda: next(clock))


def test_work_side_by_side_shares_the_time_that_was_waited_for_it():
    ledger = ledger_of(0, 1)

    ledger.charge(Part.SCHEDULE, {Part.FETCH: 1000, Part.DECODE: 3000})

    assert ledger.spent_ms == {"fetch": 250, "decode": 750}


def test_what_the_known_work_leaves_over_goes_to_the_part_that_is_named():
    ledger = ledger_of(0, 1, 3)

    ledger.charge(Part.SCHEDULE, {Part.DECODE: 400})
    ledger.charge(Part.DATABASE)

    assert ledger.spent_ms == {"decode": 400, "schedule": 600, "database": 2000}
