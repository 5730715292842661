"""Each version of a manifest that arrives is started once."""

from datetime import timedelta
from uuid import UUID

import pytest

from reelabel.sources.object_info import ObjectInfo
from tasks.database.tables import ARRIVAL
from tasks.results.runs import record_started, unstarted_manifests

FIRST, SECOND = UUID(int=1), UUID(int=2)


def version(fingerprint, uri="m.parquet"):
    return ObjectInfo(uri=uri, size_bytes=1, fingerprint=fingerprint)


def test_a_version_is_unstarted_until_a_run_was_started_for_it(db):
    found = [version("1", "b.parquet"), version("1")]
    assert unstarted_manifests(db, found) == [(info, None) for info in found]

    record_started(db, found[1], FIRST)

    assert unstarted_manifests(db, found) == [(found[0], None)]
    assert unstarted_manifests(db, [version("2")]) == [(version("2"), FIRST)]
    assert unstarted_manifests(db, []) == []


@pytest.mark.parametrize(("again", "last"), [(FIRST, SECOND), (UUID(int=3), UUID(int=3))])
def test_a_version_that_returns_is_started_again_but_a_repeated_record_changes_nothing(db, again, last):
    for fingerprint, flow_run in (("1", FIRST), ("2", SECOND), ("1", again)):
        record_started(db, version(fingerprint), flow_run)

    assert unstarted_manifests(db, [version("3")]) == [(version("3"), last)]
    is_newest = again == last
    assert bool(unstarted_manifests(db, [version("1")])) != is_newest


def test_a_version_is_started_once_even_if_the_clock_of_the_database_was_set_back(db):
    record_started(db, version("1"), FIRST)
    with db.begin() as connection:
        connection.execute(ARRIVAL.update().values(created_at=ARRIVAL.c.created_at + timedelta(hours=1)))

    record_started(db, version("2"), SECOND)
    assert unstarted_manifests(db, [version("2")]) == []

    record_started(db, version("1"), UUID(int=3))
    assert unstarted_manifests(db, [version("1")]) == []
