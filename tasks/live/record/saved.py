"""Recorded live sessions: their rows, the frames that a query saw, and retention."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, Engine, Row, RowMapping, Select, String, Table, cast, delete, func, select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError, FrameFileError, ObjectMissingError
from tasks.database.live_tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.live.record.frame_part import KeptFrame, read_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from reelabel.result import Frames
    from reelabel.sources.object_store import ObjectStore
    from tasks.frame_cache.sealed_files import SealedFiles

_SHOWN_SESSIONS = 3
# Frame files in memory while queries are read in order.
_CACHED_PARTS = 4
# A server sends heartbeats every ten seconds; a session without one for this long was lost with it.
LOST_AFTER_S = 60
_IS_LOST = LIVE_SESSION.c.seen_at < func.now() - timedelta(seconds=LOST_AFTER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A recorded session: its row, with `state` (`open`, `ended` or `lost`), its queries and its frame files."""

    row: dict[str, Any]
    queries: list[dict[str, Any]] = field(repr=False)
    parts: list[dict[str, Any]] = field(repr=False)


def list_unended(engine: Engine, *, within: timedelta, limit: int) -> Sequence[Row[Any]]:
    """List the sessions that are open, and those that were lost within some time, the latest first.

    Returns:
        `session_id`, `host`, `is_lost`, numbers of `frames` and `queries`, and the seconds since its start (`age_s`)
        and since its server's last heartbeat (`seen_s`).
    """
    seen_s, age_s = (
        func.extract("epoch", func.now() - at).cast(Double)
        for at in (LIVE_SESSION.c.seen_at, LIVE_SESSION.c.started_at)
    )
    queries = select(func.count()).where(LIVE_QUERY.c.session_id == LIVE_SESSION.c.session_id).scalar_subquery()
    query = (
        select(
            LIVE_SESSION.c.session_id,
            LIVE_SESSION.c.host,
            _IS_LOST.label("is_lost"),
            LIVE_SESSION.c.frames_kept.label("frames"),
            queries.label("queries"),
            age_s.label("age_s"),
            seen_s.label("seen_s"),
        )
        .where(LIVE_SESSION.c.ended_at.is_(None), LIVE_SESSION.c.seen_at > func.now() - within)
        .order_by(LIVE_SESSION.c.started_at.desc())
        .limit(limit)
    )
    with database_errors(), engine.connect() as connection:
        return connection.execute(query).all()


def find_session(engine: Engine, text: str) -> SavedSession:
    """Find a session by its id, a prefix of it, or `last`.

    Raises:
        ConfigurationError: None or several match; the message lists the latest.
    """
    newest = select(LIVE_SESSION, _IS_LOST.label("is_lost")).order_by(LIVE_SESSION.c.started_at.desc())
    by_id = cast(LIVE_SESSION.c.session_id, String).startswith(text.lower(), autoescape=True)
    query = newest.limit(1) if text == "last" else newest.where(by_id).limit(_SHOWN_SESSIONS)
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
        if len(rows) != 1:
            raise _no_such_session(text, rows, connection.execute(newest.limit(_SHOWN_SESSIONS)).mappings().all())
        key = rows[0]["session_id"]
        queries, parts = (
            [dict(row) for row in connection.execute(_rows_of(key, table)).mappings()]
            for table in (LIVE_QUERY, LIVE_FRAMES)
        )
    state = "ended" if rows[0]["ended_at"] else "lost" if rows[0]["is_lost"] else "open"
    return SavedSession(row=dict(rows[0]) | {"state": state}, queries=queries, parts=parts)


def _rows_of(session_id: UUID, table: Table) -> Select[Any]:
    return select(table).where(table.c.session_id == session_id).order_by(*table.primary_key)


def _no_such_session(text: str, rows: Sequence[RowMapping], latest: Sequence[RowMapping]) -> ConfigurationError:
    if not latest:
        return ConfigurationError("No live session has been recorded yet; `reelabel serve` records them.")
    known = ", ".join(f"{row['session_id']} ({row['started_at']:%Y-%m-%d %H:%M})" for row in rows or latest)
    hint = "use a longer prefix" if rows else "use one of the latest"
    return ConfigurationError(f"{'Several' if rows else 'No'} live sessions match {text!r}; {hint}: {known}.")


class SessionFrames:
    """Reads the kept frames of a recorded session."""

    def __init__(self, session: SavedSession, files: SealedFiles) -> None:
        self._parts = session.parts
        self._read = lru_cache(_CACHED_PARTS)(partial(read_part, files))

    def seen_by(self, query: Mapping[str, Any]) -> list[KeptFrame]:
        """Return the frames that a query saw, each once and in order, without those that were lost.

        Raises:
            ConfigurationError: A frame file is gone or altered.
        """
        wanted = set(query["frames"])
        firsts = [part["first_frame"] for part in self._parts]
        parts = sorted({bisect_right(firsts, number) - 1 for number in wanted} - {-1})
        return [frame for at in parts for frame in self.frames_of(self._parts[at]) if frame.number in wanted]

    def frames_of(self, part: Mapping[str, Any]) -> Iterator[KeptFrame]:
        """Yield the frames of a part. Raises as `seen_by`."""
        frames = self._file(part["key"])
        known = frames.selection
        for number, time_s, image in zip(known.frame_index.tolist(), known.time_s.tolist(), frames.unique, strict=True):
            yield KeptFrame(number, time_s, image)

    def _file(self, key: str) -> Frames:
        try:
            return self._read(key)
        except ObjectMissingError:
            why = "is gone"
        except FrameFileError as error:
            why = f"cannot be used: {error.message.rstrip('.')}"
        raise ConfigurationError(
            f"The session's frame file {key} on the store {why}; its frames cannot be shown again."
        )


# Only these files may be removed.
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
    session_id, is_old = LIVE_SESSION.c.session_id, LIVE_SESSION.c.seen_at < func.now() - age
    remove = delete(LIVE_SESSION).where(is_old).returning(session_id)
    with database_errors(), engine.begin() as connection:
        old = set(map(str, connection.scalars(select(session_id).where(is_old) if dry_run else remove)))
        others = set(map(str, connection.scalars(select(session_id)))) - old
    before, files = datetime.now(UTC) - age, 0
    for info in objects.list(f"{root_uri.rstrip('/')}/live"):
        found = _FILE.search(info.uri)
        if found is None or found[1] in others:
            continue
        if found[1] in old or (info.modified is not None and info.modified < before):
            files += 1
            if not dry_run:
                objects.remove(info.uri)
    return len(old), files
