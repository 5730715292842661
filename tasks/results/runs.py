"""Run rows: what was started, how far it came, how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import RowMapping, String, cast, func, select, update
from sqlalchemy.dialects.postgresql import insert

from infra.database import database_errors
from infra.errors import ConfigurationError
from tasks.results.tables import RUN, SPEC

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine, Select

    from tasks.domain import RunSpec

_SHOWN_RUNS = 5


def open_run(engine: Engine, *, run_id: UUID, spec: RunSpec, facts: dict[str, Any]) -> None:
    """Record a run's start and its spec; a run started again under its id continues its row.

    Args:
        engine: The database.
        run_id: The Prefect flow run's id.
        spec: The way of asking.
        facts: The run row's other columns.
    """
    row = {"run_id": run_id, "spec_id": spec.spec_id, "state": "running", "message": "", **facts}
    with database_errors(), engine.begin() as connection:
        body = spec.model_dump(mode="json")
        connection.execute(insert(SPEC).values(spec_id=spec.spec_id, body=body).on_conflict_do_nothing())
        again = {name: value for name, value in row.items() if name != "run_id"} | {"ended_at": None}
        statement = insert(RUN).values(row).on_conflict_do_update(index_elements=["run_id"], set_=again)
        connection.execute(statement)


def update_run(engine: Engine, run_id: UUID, **columns: Any) -> None:  # noqa: ANN401 - column values
    """Set some of a run's columns."""
    with database_errors(), engine.begin() as connection:
        connection.execute(update(RUN).where(RUN.c.run_id == run_id).values(**columns))


def close_run(engine: Engine, run_id: UUID, *, state: str, message: str, **columns: Any) -> None:  # noqa: ANN401
    """Record how a run ended, by the database's clock, and set others of its columns."""
    update_run(engine, run_id, state=state, message=message, ended_at=func.now(), **columns)


def cancel_run(engine: Engine, run_id: UUID) -> None:
    """Record that a user stopped a run, unless it has ended by itself."""
    columns = {"state": "cancelled", "message": "Stopped by the user.", "ended_at": func.now()}
    statement = update(RUN).where(RUN.c.run_id == run_id, RUN.c.state == "running").values(columns)
    with database_errors(), engine.begin() as connection:
        connection.execute(statement)


def read_run(engine: Engine, run_id: UUID) -> RowMapping | None:
    """Read a run's row; None before it started."""
    with database_errors(), engine.connect() as connection:
        return connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one_or_none()


def find_run(engine: Engine, text: str) -> RowMapping:
    """Find a run by its id, the beginning of its id, or `last`.

    Raises:
        ConfigurationError: None or several match; the latest runs are named.
    """
    newest = _newest()
    by_id = cast(RUN.c.run_id, String).startswith(text.lower(), autoescape=True)
    query = newest.limit(1) if text == "last" else newest.where(by_id)
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
        latest = connection.execute(newest.limit(_SHOWN_RUNS)).mappings().all()
    if not latest:
        raise ConfigurationError("No run has been started yet; `reelabel classify` starts one.")
    if len(rows) != 1:
        known = ", ".join(f"{row['run_id']} ({row['dataset']})" for row in (rows or latest)[:_SHOWN_RUNS])
        which = "give more of the id" if rows else "give one of the latest"
        raise ConfigurationError(f"{len(rows) or 'No'} runs match {text!r}; {which}: {known}.")
    return rows[0]


def last_run_of(engine: Engine, manifest_uri: str) -> RowMapping:
    """Find the latest run of a manifest.

    Raises:
        ConfigurationError: There is none.
    """
    query = _newest().where(RUN.c.manifest_uri == manifest_uri).limit(1)
    with database_errors(), engine.connect() as connection:
        row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise ConfigurationError(
            f"No run of {manifest_uri} has been started; start one by `reelabel classify`, or name a run by --run."
        )
    return row


def _newest() -> Select[Any]:
    return select(RUN).order_by(RUN.c.started_at.desc())
