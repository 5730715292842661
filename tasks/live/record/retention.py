"""Removal of live sessions past their retention."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Engine, delete, func, select

from infra.database.connect import database_errors
from tasks.database.tables import LIVE_SESSION

if TYPE_CHECKING:
    from reelabel.sources.object_store import ObjectStore

# No other files below the root may be removed.
_FILE = re.compile(r"/live/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/[0-9a-z]+\.(arrow|footage\.mkv|parquet)$")


def remove_old_sessions(
    engine: Engine, objects: ObjectStore, *, root_uri: str, age: timedelta, dry_run: bool = False
) -> tuple[int, int]:
    """Remove sessions last seen longer ago than `age`, with their queries and frames.

    Files of sessions without a row, such as those whose removal was interrupted, are removed at the same age, by the
    store's time of modification. A dry run only counts.

    Returns:
        The numbers of sessions and of files removed.
    """
    is_old = LIVE_SESSION.c.seen_at < func.now() - age
    with database_errors(), engine.begin() as connection:
        gone = set(connection.execute(select(LIVE_SESSION.c.session_id).where(is_old)).scalars())
        stay = set(connection.execute(select(LIVE_SESSION.c.session_id)).scalars()) - gone
        if not dry_run:
            connection.execute(delete(LIVE_SESSION).where(LIVE_SESSION.c.session_id.in_(gone)))
    known, leaving, before, files = set(map(str, stay)), set(map(str, gone)), datetime.now(UTC) - age, 0
    for info in objects.list(f"{root_uri.rstrip('/')}/live"):
        found = _FILE.search(info.uri)
        if found is None or found[1] in known:
            continue
        if found[1] in leaving or (info.modified is not None and info.modified < before):
            files += 1
            if not dry_run:
                objects.remove(info.uri)
    return len(gone), files
