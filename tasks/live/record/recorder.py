"""Saves live sessions: frames to the object store, queries to Postgres.

A query's row is committed before its answer is acknowledged. Frames are written in the background, so that no arrival
waits for the store: a server that is killed loses those of the last seconds at most. What cannot be written, also when
a session ends, waits until the store and Postgres are back.
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
# How often waiting frames are written, and sessions are marked as alive.
WRITE_EVERY_S = 10.0
# The most pixels of a frame file, and of all frames that wait for a store that does not respond.
_PART_BYTES = 64 * 1024**2
_WAITING_BYTES = 4 * _PART_BYTES


class Recorder:
    """Records the sessions of one server; threads of it write their frames and heartbeats. Thread-safe."""

    def __init__(self, engine: Engine, files: SealedFiles, *, write_every_s: float = WRITE_EVERY_S) -> None:
        self.engine, self.files = engine, files
        self._every_s = write_every_s
        self._records: dict[UUID, SessionRecord] = {}
        self._waiting_bytes = 0  # of all sessions
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        # Two, as a store that does not respond takes long, and sessions are alive meanwhile.
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("live-frames", self._write_on), ("live-heartbeat", self._beat))
        ]
        for thread in self._threads:
            thread.start()

    def open_session(self, session_id: str, config: SessionConfig, info: LiveInfo) -> SessionRecord:
        """Write the row of a session that begins; raises as `open`."""
        left_out = {"type", "sampling", "sampling_params_list", "persistent", *(config.model_extra or ())}
        asked = config.model_dump(mode="json", exclude_none=True, exclude=left_out)
        sampling = config.answers.model_dump(include={*Sampling.model_fields}, exclude_none=True)
        asked |= {"sampling": sampling}
        host = socket.gethostname()
        return self.open(UUID(session_id), model=info.model, config=asked, versions=info.versions, host=host)

    def open(
        self, session_id: UUID, *, model: str, config: Mapping[str, Any], versions: Mapping[str, str], host: str
    ) -> SessionRecord:
        """Write the row of a session that begins; `config` is what its client asked for, as JSON values.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; nothing is recorded.
        """
        row = {"session_id": session_id, "model": model, "host": host}
        row |= {"config": dict(config), "versions": dict(versions)}
        with database_errors(), self.engine.begin() as connection:
            connection.execute(insert(LIVE_SESSION).values(row))
        record = SessionRecord(self, session_id)
        with self._lock:
            self._records[session_id] = record
        return record

    def forget(self, session_id: UUID) -> None:
        with self._lock:
            self._records.pop(session_id, None)

    def reserve(self, size_bytes: int) -> bool:
        """Return whether so much more may wait, and count it; a negative size frees it."""
        with self._lock:
            if size_bytes > 0 and self._waiting_bytes + size_bytes > _WAITING_BYTES:
                return False
            self._waiting_bytes += size_bytes
            if self._waiting_bytes >= _PART_BYTES:
                self._wake.set()
            return True

    def close(self) -> None:
        """Stop the threads, and write what waits; sessions that have not ended stay open in the database.

        Frames that cannot be written count as lost.
        """
        self._closing.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self._write_all()
        ended = [record for record in self._records.values() if record.has_ended]
        for record in ended:
            record.give_up_frames()
        if ended:
            self._write_all()

    def _write_on(self) -> None:
        while True:
            self._wake.wait(self._every_s)
            if self._closing.is_set():
                return
            self._wake.clear()
            self._write_all()

    def _write_all(self) -> None:
        with self._lock:
            records = list(self._records.values())
        for record in records:
            try:
                record.write()
            except ReelabelError as error:
                _LOGGER.warning("Frames of the live session %s wait: %s", record.session_id, error)
            except Exception:  # those of the other sessions are written all the same
                _LOGGER.exception("Frames of the live session %s cannot be written", record.session_id)
                if record.has_ended:  # as if its row were gone
                    record.give_up_frames()
                    self.forget(record.session_id)

    def _beat(self) -> None:
        while not self._closing.wait(self._every_s):
            self._mark_alive()

    def _mark_alive(self) -> None:
        with self._lock:
            session_ids = list(self._records)
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
    """Records one session.

    The session calls `keep`, `answer` and at last `close`, `keep` never from two threads at once. Threads of the
    recorder call `write` meanwhile, and `give_up_frames` only after `close`: no two threads change a count at once.
    """

    recorder: Recorder
    session_id: UUID
    _waiting: deque[KeptFrame] = field(default_factory=deque)
    _kept: int = 0
    _lost: int = 0
    _parts: int = 0
    _end: dict[str, Any] | None = None  # of its row
    _ended_s: float = 0.0
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Record a kept frame, later than those before; returns at once.

        Where the store has not responded for so long that the waiting frames would fill the memory, a frame is
        counted as lost instead.
        """
        self._kept = number + 1
        if self.recorder.reserve(image.nbytes):
            self._waiting.append(KeptFrame(number, time_s, np.ascontiguousarray(image)))
        else:
            self._lost += 1

    def answer(self, row: Mapping[str, Any]) -> None:
        """Write the row of a query; it is committed when this returns. Writing the same query again changes nothing.

        Args:
            row: Columns of `live_query`, but for the session; texts may have characters that Postgres does not store.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; the row may or may not have been written.
        """
        values = {name: _storable(value) for name, value in row.items()} | {"session_id": self.session_id}
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(upsert(LIVE_QUERY).values(values).on_conflict_do_nothing())

    def write(self) -> None:
        """Write the waiting frames to the store, and their rows; of a session that has ended, its end as well.

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

    def give_up_frames(self) -> None:
        with self._writing:
            self._lost += len(self._waiting)
            self._forget_frames([*self._waiting])

    def close(self, *, reason: str, **counts: float) -> None:
        """Write the remaining frames, and the session's end; `counts` are columns of `live_session`.

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
        counted = {"frames_kept": self._kept, "frames_lost": self._lost}
        ended_at = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, time.monotonic() - self._ended_s)
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(ended.values({**values, **counted, "ended_at": ended_at, "seen_at": func.now()}))

    def _next_part(self) -> list[KeptFrame]:
        frames: list[KeptFrame] = []
        room = _PART_BYTES
        for frame in tuple(self._waiting):  # others may be added meanwhile
            if frames and (frame.image.shape != frames[0].image.shape or frame.image.nbytes > room):
                break
            frames.append(frame)
            room -= frame.image.nbytes
        return frames

    def _write_part(self, frames: list[KeptFrame]) -> None:
        recorder, key = self.recorder, key_of(self.session_id, self._parts)
        data = encode_part(frames, session_id=self.session_id, part=self._parts, seal=recorder.files.seal)
        # A write whose row could not be written is repeated, and may have more frames by then.
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
