"""Manifests for which a run was started on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from infra.database.connect import database_errors
from tasks.database.tables import ARRIVAL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from reelabel.sources.object_store import ObjectInfo


def unstarted_manifests(engine: Engine, found: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, UUID | None]]:
    """Select the manifests whose current version was not the last one started.

    Returns:
        The manifests in the order of `found`, each with the flow run last started for it, or None if there is none.
    """
    query = (
        select(ARRIVAL.c.manifest_uri, ARRIVAL.c.fingerprint, ARRIVAL.c.flow_run_id)
        .distinct(ARRIVAL.c.manifest_uri)
        .where(ARRIVAL.c.manifest_uri == func.any([info.uri for info in found]))
        .order_by(ARRIVAL.c.manifest_uri, ARRIVAL.c.created_at.desc())
    )
    with database_errors(), engine.connect() as connection:
        last = {uri: (fingerprint, flow_run_id) for uri, fingerprint, flow_run_id in connection.execute(query)}
    before = [last.get(info.uri, (None, None)) for info in found]
    return [
        (info, flow_run_id)
        for info, (fingerprint, flow_run_id) in zip(found, before, strict=True)
        if fingerprint != info.fingerprint
    ]


def record_started(engine: Engine, info: ObjectInfo, flow_run_id: UUID) -> None:
    """Record that a run was started for a version of a manifest; safe to call repeatedly."""
    row = {"manifest_uri": info.uri, "fingerprint": info.fingerprint, "flow_run_id": flow_run_id}
    # If an earlier version returns, its row becomes the newest again. A repeated call changes nothing.
    upsert = (
        insert(ARRIVAL)
        .values(row)
        .on_conflict_do_update(
            index_elements=["manifest_uri", "fingerprint"],
            set_={"flow_run_id": flow_run_id, "created_at": func.now()},
            where=ARRIVAL.c.flow_run_id != flow_run_id,
        )
    )
    with database_errors(), engine.begin() as connection:
        connection.execute(upsert)
