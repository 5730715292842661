"""Manifests that were started when they arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from infra.database import database_errors
from tasks.results.tables import ARRIVAL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine

    from infra.objects import ObjectInfo


def unstarted(engine: Engine, found: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Select the manifests that were not started in their present version, in the order of `found`."""
    query = select(ARRIVAL.c.manifest_uri, ARRIVAL.c.fingerprint).where(
        ARRIVAL.c.manifest_uri == func.any([info.uri for info in found])
    )
    with database_errors(), engine.connect() as connection:
        known = {(row.manifest_uri, row.fingerprint) for row in connection.execute(query)}
    return [info for info in found if (info.uri, info.fingerprint) not in known]


def record_started(engine: Engine, info: ObjectInfo, flow_run_id: UUID) -> None:
    """Keep that a manifest was started; safe to call again."""
    row = {"manifest_uri": info.uri, "fingerprint": info.fingerprint, "flow_run_id": flow_run_id}
    with database_errors(), engine.begin() as connection:
        connection.execute(insert(ARRIVAL).values(row).on_conflict_do_nothing())
