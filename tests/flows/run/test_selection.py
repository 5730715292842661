"""The run that a backfill corrects."""

from uuid import uuid4

from flows.run.request import BackfillRequest
from flows.run.selection import JobSelector
from tasks.results.runs import close_run, open_run
from tests.results.rows import FACTS, SPEC


def test_a_restarted_backfill_of_the_last_run_does_not_take_itself_for_it(db, services, database):
    whole, backfill = uuid4(), uuid4()
    open_run(db, run_id=whole, spec=SPEC, facts=FACTS)
    close_run(db, whole, state="failed", message="")
    open_run(db, run_id=backfill, spec=SPEC, facts=FACTS | {"kind": "backfill"})
    close_run(db, backfill, state="lost", message="")
    request = BackfillRequest(manifest="m.parquet", selection={"run": "last", "failed": True})

    selector = JobSelector.of(request, services.model_copy(update={"database": database}), own=backfill)

    assert selector.earlier.run_id == whole
