"""Manifests for which a run was started on arrival."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import false, func, not_, select
from sqlalchemy.dialects.postgresql import insert

from infra.database.connect import database_errors
from tasks.database.tables import ARRIVAL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import ColumnElement, Engine

    from reelabel.sources.object_store import ObjectInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The last run that was started for a manifest.

    Attributes:
        flow_run_id: Its flow run.
        content_digest: SHA-256 of the manifest that it was started for, in hex digits.
    """

    flow_run_id: UUID
    content_digest: str


def unstarted_manifests(engine: Engine, found: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, Arrival | None]]:
    """Select the manifests whose current version was not the last one started.

    Returns:
        The manifests in the order of `found`, each with its last arrival, or None if it was never started.
    """
    query = (
        select(ARRIVAL.c.manifest_uri, ARRIVAL.c.fingerprint, ARRIVAL.c.flow_run_id, ARRIVAL.c.content_digest)
        .distinct(ARRIVAL.c.manifest_uri)
        .where(ARRIVAL.c.manifest_uri == func.any([info.uri for info in found]))
        .order_by(ARRIVAL.c.manifest_uri, ARRIVAL.c.created_at.desc())
    )
    with database_errors(), engine.connect() as connection:
        last = {row.manifest_uri: row for row in connection.execute(query)}
    unstarted: list[tuple[ObjectInfo, Arrival | None]] = []
    for info in found:
        row = last.get(info.uri)
        if row is None:
            unstarted.append((info, None))
        elif row.fingerprint != info.fingerprint:
            unstarted.append((info, Arrival(flow_run_id=row.flow_run_id, content_digest=row.content_digest)))
    return unstarted


def record_started(engine: Engine, info: ObjectInfo, arrival: Arrival) -> None:
    """Record that a run was started for a version of a manifest; safe to call repeatedly."""
    # If an earlier version returns, its row becomes the newest again. A repeated call changes nothing.
    _record(engine, info, arrival, unless=ARRIVAL.c.flow_run_id == arrival.flow_run_id)


def record_same(engine: Engine, info: ObjectInfo, arrival: Arrival) -> None:
    """Record that a version of a manifest has the content for which a run was started last."""
    _record(engine, info, arrival, unless=false())


def _record(engine: Engine, info: ObjectInfo, arrival: Arrival, *, unless: ColumnElement[bool]) -> None:
    row = {"manifest_uri": info.uri, "fingerprint": info.fingerprint, **asdict(arrival)}
    upsert = (
        insert(ARRIVAL)
        .values(row)
        .on_conflict_do_update(
            index_elements=["manifest_uri", "fingerprint"],
            set_={**asdict(arrival), "created_at": func.now()},
            where=not_(unless),
        )
    )
    with database_errors(), engine.begin() as connection:
        connection.execute(upsert)
