"""Manifests that were started when they arrived."""

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
    """Select the manifests that were last started in another version than the present one, or never.

    Returns:
        Them in the order of `found`, each with the flow run that was started on it last.
    """
    query = (
        select(ARRIVAL.c.manifest_uri, ARRIVAL.c.fingerprint, ARRIVAL.c.flow_run_id)
        .distinct(ARRIVAL.c.manifest_uri)
        .where(ARRIVAL.c.manifest_uri == func.any([info.uri for info in found]))
        .order_by(ARRIVAL.c.manifest_uri, ARRIVAL.c.created_at.desc())
    )
    with database_errors(), engine.connect() as connection:
        last = {row.manifest_uri: (row.fingerprint, row.flow_run_id) for row in connection.execute(query)}
    versions = [(info, *last.get(info.uri, (None, None))) for info in found]
    return [(info, flow_run_id) for info, fingerprint, flow_run_id in versions if fingerprint != info.fingerprint]


def record_started(engine: Engine, info: ObjectInfo, flow_run_id: UUID) -> None:
    """Keep that a manifest was started; safe to call again."""
    row = {"manifest_uri": info.uri, "fingerprint": info.fingerprint, "flow_run_id": flow_run_id}
    statement = insert(ARRIVAL).values(row)
    # A version that is back: its row is the newest again. One that others have recorded meanwhile stays as it is.
    again = statement.on_conflict_do_update(
        index_elements=["manifest_uri", "fingerprint"],
        set_={"flow_run_id": flow_run_id, "created_at": func.now()},
        where=ARRIVAL.c.flow_run_id != flow_run_id,
    )
    with database_errors(), engine.begin() as connection:
        connection.execute(again)
