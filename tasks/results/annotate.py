"""Known answers and task names, which a user may correct in the manifest without running its jobs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import or_, select, update

from infra.database.connect import require_writes
from tasks.database.tables import DESCRIPTION, FAILURE, RESULT
from tasks.database.temp_table import ASKED, has_rows, temp_job_table

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tasks.database.scope import Scope
    from tasks.manifest.table import JobTable

_ANNOTATIONS = ("answer", "task", "subtask")


def refresh_annotations(engine: Engine, scope: Scope, *, jobs: JobTable) -> None:
    """Update `answer`, `task` and `subtask` in the rows of earlier runs to the manifest's current values.

    Raises:
        DatabaseUnavailableError: Nothing was changed.
    """
    if not has_rows(engine, scope):
        return
    require_writes(engine)
    with temp_job_table(engine, jobs.parts()) as connection:
        for table in (RESULT, DESCRIPTION, FAILURE):
            names = [name for name in _ANNOTATIONS if name in table.c]
            is_corrected = or_(*(table.c[name].is_distinct_from(ASKED.c[name]) for name in names))
            # Locked in the order of their ids, as by writers of shards, to avoid deadlocks.
            corrected = (
                select(table.c.job_id, *(ASKED.c[name] for name in names))
                .where(scope.matches(table), table.c.job_id == ASKED.c.job_id, is_corrected)
                .order_by(table.c.job_id)
                .with_for_update(of=table)
                .cte("corrected")
            )
            statement = update(table).where(scope.matches(table), table.c.job_id == corrected.c.job_id)
            connection.execute(statement.values({name: corrected.c[name] for name in names}))
