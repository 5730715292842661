"""A manifest's jobs as a temporary table, so that the database compares millions of them itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, Table, Text, text

from infra.database import database_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from tasks.domain import Job

ASKED = Table(
    "asked",
    MetaData(),
    Column("job_id", Text, primary_key=True),
    Column("job_digest", Text, nullable=False),
    *(Column(name, Text) for name in ("answer", "task", "subtask")),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)
_COPY = "COPY asked (job_id, job_digest, answer, task, subtask) FROM STDIN"


@contextmanager
def staged_jobs(engine: Engine, jobs: Sequence[Job]) -> Iterator[Connection]:
    """Open a transaction in which `jobs` are the table ASKED; it is gone at the end.

    Raises:
        DatabaseUnavailableError: Postgres did not answer, here or in the body.
    """
    with database_errors(), engine.begin() as connection:
        ASKED.create(connection)
        psycopg: Any = connection.connection.driver_connection  # SQLAlchemy itself knows no COPY
        with psycopg.cursor() as cursor, cursor.copy(_COPY) as copy:
            for job in jobs:
                copy.write_row((job.job_id, job.digest, job.answer, job.task, job.subtask))
        # Nothing else gathers statistics of a temporary table, and the planner would guess a small one.
        connection.execute(text("ANALYZE asked"))
        yield connection
