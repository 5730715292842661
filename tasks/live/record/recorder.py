"""Records live sessions: frames in the object store, queries in Postgres.

A query's row is committed before its answer is sent. Frames are written in the background, so that no session waits for
the store: a server that is killed loses those of the last seconds. If the store or Postgres is unavailable, frames and
the ends of sessions wait.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from sqlalchemy import Engine, func, insert, update
from sqlalchemy.dialects.postgresql import insert as upsert

from infra.database.connect import database_errors
from reelabel.errors import ReelabelError
from tasks.database.live_tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.database.temp_table import storable
from tasks.live.messages import Sampling, SessionConfig
from tasks.live.record.frame_part import KeptFrame, encode_part, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tasks.frame_cache.sealed_files import SealedFiles
    from tasks.live.model import LiveInfo

_LOGGER = logging.getLogger(__name__)
# Interval at which waiting frames are written, and sessions are marked as alive.
WRITE_EVERY_S = 10.0
# Limits of the pixels of a frame file, and of the waiting frames of all sessions.
_PART_BYTES = 64 * 1024**2
_WAITING_BYTES = 4 * _PART_BYTES


class Recorder:
    """Records the sessions of one server; its threads write frames and heartbeats. Thread-safe."""

    def __init__(self, engine: Engine, files: SealedFiles, *, write_every_s: float = WRITE_EVERY_S) -> None:
        self.engine, self.files = engine, files
        self._every_s = write_every_s
        self._records: dict[UUID, SessionRecord] = {}
        self._waiting_bytes = 0  # of all sessions
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        # Two, because sessions are alive while the other one waits for the store.
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("live-frames", self._write_periodically), ("live-heartbeat", self._send_heartbeats))
        ]
        for thread in self._threads:
            thread.start()

    def open_session(self, session_id: str, config: SessionConfig, *, info: LiveInfo) -> SessionRecord:
        """Write the row of a new session, whose id is a UUID.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; nothing is recorded.
        """
        left_out = {"type", "sampling", "sampling_params_list", "persistent", *(config.model_extra or ())}
        values = config.model_dump(mode="json", exclude_none=True, exclude=left_out)
        values["sampling"] = config.answers.model_dump(include={*Sampling.model_fields}, exclude_none=True)
        row: dict[str, Any] = {"session_id": session_id, "model": info.model, "host": socket.gethostname()}
        row |= {"config": values, "versions": info.versions}
        with database_errors(), self.engine.begin() as connection:
            connection.execute(insert(LIVE_SESSION).values(row))
        record = SessionRecord(self, UUID(session_id))
        with self._lock:
            self._records[record.session_id] = record
        return record

    def forget(self, session_id: UUID) -> None:
        with self._lock:
            self._records.pop(session_id, None)

    def reserve(self, size_bytes: int) -> bool:
        """Count bytes that wait, and return True; False if there is no room. Negative numbers free room."""
        with self._lock:
            before = self._waiting_bytes
            if size_bytes > 0 and before + size_bytes > _WAITING_BYTES:
                return False
            self._waiting_bytes += size_bytes
            if before < _PART_BYTES <= self._waiting_bytes:
                self._wake.set()
            return True

    def close(self) -> None:
        """Stop the threads, and write what waits; frames that cannot be written are lost.

        Sessions that have not ended stay open in the database.
        """
        self._closing.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self._write_all()
        for record in self._open_records():
            if record.has_ended:
                record.drop_frames()
        self._write_all()

    def _open_records(self) -> list[SessionRecord]:
        with self._lock:
            return list(self._records.values())

    def _write_periodically(self) -> None:
        while True:
            self._wake.wait(self._every_s)
            if self._closing.is_set():
                return
            self._wake.clear()
            if self._write_all() and self._waiting_bytes >= _PART_BYTES:
                self._wake.set()  # as much has arrived meanwhile

    def _write_all(self) -> bool:
        """Write what waits of each session; return whether the store and the database were available."""
        is_available = True
        for record in self._open_records():
            try:
                record.write()
            except ReelabelError as error:
                is_available = False
                _LOGGER.warning("Frames of the live session %s wait: %s", record.session_id, error)
            except Exception:  # a defect, which must neither stop the other sessions nor take their room
                _LOGGER.exception("Frames of the live session %s cannot be written", record.session_id)
                record.drop_frames()
        return is_available

    def _send_heartbeats(self) -> None:
        while not self._closing.wait(self._every_s):
            self._mark_alive()

    def _mark_alive(self) -> None:
        session_ids = [record.session_id for record in self._open_records()]
        if not session_ids:
            return
        alive = update(LIVE_SESSION).where(LIVE_SESSION.c.session_id.in_(session_ids)).values(seen_at=func.now())
        try:
            with database_errors(), self.engine.begin() as connection:
                connection.execute(alive)
        except ReelabelError as error:
            _LOGGER.warning("The live sessions could not be marked as alive: %s", error)


@dataclass(eq=False)
class SessionRecord:
    """Records one session. Thread-safe, except that `keep` must not be called by two threads at once."""

    recorder: Recorder
    session_id: UUID
    _waiting: deque[KeptFrame] = field(default_factory=deque)
    _kept: int = 0
    _refused: int = 0  # frames for which there was no room
    _dropped: int = 0  # frames that could not be written
    _parts: int = 0
    _end: dict[str, Any] | None = None  # columns of its row, once it has ended
    _ended_s: float = 0.0
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Let a kept frame wait for the next write; if there is no more room, count it as lost."""
        self._kept = number + 1
        if self.recorder.reserve(image.nbytes):
            self._waiting.append(KeptFrame(number, time_s, np.ascontiguousarray(image)))
        else:
            self._refused += 1

    def answer(self, row: Mapping[str, Any]) -> None:
        """Write the row of a query, and commit it; does nothing if it is there already.

        Args:
            row: Columns of `live_query` without the session; characters that Postgres does not store are replaced.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; the row may or may not have been written.
        """
        values = {name: _storable(value) for name, value in row.items()} | {"session_id": self.session_id}
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(upsert(LIVE_QUERY).values(values).on_conflict_do_nothing())

    def write(self) -> None:
        """Write the waiting frames and their rows, and the end of a session that has ended.

        Raises:
            TransientError: The store or Postgres is unavailable; the frames wait.
        """
        with self._writing:
            while frames := self._next_part():
                self._write_part(frames)
                self._forget_frames(frames)
            if self._end is not None:
                self._write_end(self._end)
                self.recorder.forget(self.session_id)

    def drop_frames(self) -> None:
        """Count the waiting frames as lost."""
        with self._writing:
            frames = [*self._waiting]
            self._dropped += len(frames)
            self._forget_frames(frames)

    def close(self, *, reason: str, **counts: float) -> None:
        """Write the remaining frames and the session's end; `counts` are columns of `live_session`.

        Raises:
            TransientError: The store or Postgres is unavailable; the recorder writes them later.
        """
        self._ended_s, self._end = time.monotonic(), {**counts, "reason": storable(reason)}
        self.write()

    def _forget_frames(self, frames: list[KeptFrame]) -> None:
        for frame in frames:
            self._waiting.popleft()
            self.recorder.reserve(-frame.image.nbytes)

    def _write_end(self, values: Mapping[str, Any]) -> None:
        ended = update(LIVE_SESSION).where(LIVE_SESSION.c.session_id == self.session_id)
        counted = {"frames_kept": self._kept, "frames_lost": self._refused + self._dropped}
        ended_at = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, time.monotonic() - self._ended_s)
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(ended.values({**values, **counted, "ended_at": ended_at, "seen_at": func.now()}))

    def _next_part(self) -> list[KeptFrame]:
        frames: list[KeptFrame] = []
        room = _PART_BYTES
        for frame in tuple(self._waiting):  # the session may add some meanwhile
            if frames and (frame.image.shape != frames[0].image.shape or frame.image.nbytes > room):
                break
            frames.append(frame)
            room -= frame.image.nbytes
        return frames

    def _write_part(self, frames: list[KeptFrame]) -> None:
        recorder, key = self.recorder, key_of(self.session_id, self._parts)
        data = encode_part(frames, session_id=self.session_id, part=self._parts, seal=recorder.files.seal)
        # If its row cannot be written, the part is written again, perhaps with more frames.
        recorder.files.objects.replace(recorder.files.uri_of(key), data)
        row = {"session_id": self.session_id, "part": self._parts, "key": key, "bytes": len(data)}
        row |= {"first_frame": frames[0].number, "frames": len(frames)}
        row |= {"first_s": frames[0].time_s, "last_s": frames[-1].time_s}
        replaced = upsert(LIVE_FRAMES).values(row)
        kept = update(LIVE_SESSION).where(LIVE_SESSION.c.session_id == self.session_id)
        with database_errors(), recorder.engine.begin() as connection:
            connection.execute(replaced.on_conflict_do_update(index_elements=["session_id", "part"], set_=row))
            connection.execute(kept.values(frames_kept=frames[-1].number + 1, seen_at=func.now()))
        self._parts += 1


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
    return [*map(_storable, value)] if isinstance(value, list | tuple) else value
