"""What a live session leaves behind: its kept frames in frame files on the store, its queries as rows.

A query's row is committed before its answer is acknowledged. Frames are written in the background, so that no arrival
waits for the store: a server that is killed loses those of the last seconds at most. What cannot be written when a
session ends is written once the store and Postgres are back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import func, insert, update
from sqlalchemy.dialects.postgresql import insert as upsert

from infra.database.connect import database_errors
from reelabel.errors import ReelabelError
from tasks.database.tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.database.temp_table import storable
from tasks.live.record.frame_part import KeptFrame, encode_part, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    import numpy.typing as npt
    from sqlalchemy import Engine

    from tasks.frame_cache.sealed_files import SealedFiles

_LOGGER = logging.getLogger(__name__)
# How often waiting frames are written, and sessions are marked as alive.
WRITE_EVERY_S = 10.0
# The most pixels of a frame file, and of the frames that wait for a store that does not respond: those of one session,
# and those of all that have ended.
_PART_BYTES = 64 * 1024**2
_WAITING_BYTES = 4 * _PART_BYTES
_MAX_ENDED = 64
# Columns of a query's row that are as in `Answered`.
_SAME = (
    *("query", "code", "asked_s", "last_frame_s", "audio_s"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "first_token_ms", "total_ms", "model"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session that begins.

    Attributes:
        session_id: Its id.
        model: The model that answers.
        config: What its client asked for, as JSON values.
        versions: Versions of what decodes and answers.
        host: The server's machine.
    """

    session_id: UUID
    model: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A query that has ended, with an answer or with the reason why it has none.

    Attributes:
        query: Number of the query in its session, from 0.
        question: The question as asked.
        choices: The choices, of a query that has some.
        answer: The answer's text, or the choice; None if there is none.
        probabilities: Probability of each choice.
        code: Why there is no answer, as a stable code; None if there is one.
        message: The same as a sentence.
        asked_s: When it was asked, in seconds on the session's clock.
        frames: Numbers of the kept frames in its prompt, in order; twice where one is shown twice before others.
        last_frame_s: Time of the last frame; None if no frame was seen.
        audio_s: Seconds of audio in its prompt.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those whose prefill was found in the cache.
        output_tokens: Tokens of the answer.
        first_token_ms: From the query's arrival to the first token; None if there is none.
        total_ms: From the query's arrival to the last token.
        model: The model that answered.
    """

    query: int
    question: str
    choices: tuple[str, ...] | None = None
    answer: str | None
    probabilities: tuple[float, ...] | None = None
    code: str | None = None
    message: str | None = None
    asked_s: float
    frames: tuple[int, ...]
    last_frame_s: float | None
    audio_s: float = 0.0
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    first_token_ms: float | None
    total_ms: float
    model: str

    @property
    def margin(self) -> float | None:
        """Probability of the best choice minus that of the runner-up."""
        if self.probabilities is None:
            return None
        best, second = sorted(self.probabilities, reverse=True)[:2]
        return best - second


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCounts:
    """How the frames of a session were acknowledged, those that were not kept.

    Attributes:
        received: All frames.
        similar: Too similar to the last kept one.
        evicted: Came too late.
        audio_s: Seconds of audio that was received.
    """

    received: int
    similar: int = 0
    evicted: int = 0
    audio_s: float = 0.0


class Recorder:
    """Records the sessions of one server; threads of it write their frames and heartbeats. Thread-safe."""

    def __init__(
        self,
        engine: Engine,
        files: SealedFiles,
        *,
        write_every_s: float = WRITE_EVERY_S,
    ) -> None:
        """Start the threads.

        Args:
            engine: The database.
            files: The frame files.
            write_every_s: Seconds between two writes of waiting frames.
        """
        self.engine, self.files = engine, files
        self._every_s = write_every_s
        self._records: dict[UUID, SessionRecord] = {}
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        # Two, as a store that does not respond takes long, and sessions are alive meanwhile.
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("live-frames", self._write_on), ("live-heartbeat", self._beat))
        ]
        for thread in self._threads:
            thread.start()

    def open(self, opened: Opened) -> SessionRecord:
        """Write the row of a session that begins.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; nothing is recorded.
        """
        row = {name: getattr(opened, name) for name in ("session_id", "model", "host")}
        row |= {"config": dict(opened.config), "versions": dict(opened.versions)}
        with database_errors(), self.engine.begin() as connection:
            connection.execute(insert(LIVE_SESSION).values(row))
        record = SessionRecord(self, opened.session_id)
        with self._lock:
            self._records[opened.session_id] = record
        return record

    def forget(self, session_id: UUID) -> None:
        """No longer write a session whose end is written."""
        with self._lock:
            self._records.pop(session_id, None)

    def wake(self) -> None:
        """Write waiting frames now, in the background."""
        self._wake.set()

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
        records = self._bounded()
        for record in records:
            try:
                record.write()
            except Exception as error:  # noqa: BLE001 - those of the other sessions are written all the same
                _LOGGER.warning("Frames of the live session %s wait: %s", record.session_id, _told(error))
                if record.has_ended and not isinstance(error, ReelabelError):  # as if its row were gone
                    self.forget(record.session_id)

    def _bounded(self) -> list[SessionRecord]:
        """Return all sessions; those that have ended give up frames where too much waits."""
        with self._lock:
            records = list(self._records.values())
        room = _WAITING_BYTES
        ended = [record for record in reversed(records) if record.has_ended]
        for number, record in enumerate(ended, 1):
            room -= record.waiting_bytes
            if room < 0 or number > _MAX_ENDED:
                record.give_up_frames()
        return records

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
    """Records one session. Thread-safe."""

    recorder: Recorder
    session_id: UUID
    _waiting: deque[KeptFrame] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _kept: int = 0
    _lost: int = 0
    _parts: int = 0
    _end: dict[str, Any] | None = None  # of its row
    _ended_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        """Whether no frame and no query follow."""
        return self._end is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the frames that wait."""
        return self._waiting_bytes

    def keep(self, *, number: int, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Record a kept frame, later than those before; returns at once.

        Where the store has not responded for so long that the waiting frames would fill the memory, a frame is
        counted as lost instead.

        Args:
            number: Its number among the session's kept frames, from 0.
            time_s: Its time, in seconds on the session's clock.
            image: RGB pixels; shape (H, W, 3), uint8.
        """
        with self._lock:
            self._kept = number + 1
            if self._waiting_bytes + image.nbytes > _WAITING_BYTES:
                self._lost += 1
                return
            self._waiting.append(KeptFrame(number, time_s, np.ascontiguousarray(image)))
            self._waiting_bytes += image.nbytes
            is_full = self._waiting_bytes >= _PART_BYTES
        if is_full:
            self.recorder.wake()

    def answer(self, answered: Answered) -> None:
        """Write the row of a query; it is committed when this returns. Writing the same query again changes nothing.

        Raises:
            DatabaseUnavailableError: Postgres is unavailable; the row may or may not have been written.
        """
        row: dict[str, Any] = {
            "session_id": self.session_id,
            "question": storable(answered.question),
            "choices": None if answered.choices is None else [storable(choice) for choice in answered.choices],
            "answer": None if answered.answer is None else storable(answered.answer),
            "choice_index": _choice_index(answered),
            "probabilities": None if answered.probabilities is None else list(answered.probabilities),
            "margin": answered.margin,
            "frames": list(answered.frames),
            "message": None if answered.message is None else storable(answered.message),
        }
        row |= {name: getattr(answered, name) for name in _SAME}
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(upsert(LIVE_QUERY).values(row).on_conflict_do_nothing())

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
        """Count the waiting frames as lost."""
        with self._writing, self._lock:
            self._lost += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0

    def close(self, *, reason: str, counts: FrameCounts) -> None:
        """Write the remaining frames, and the session's end.

        Raises:
            TransientError: The store or Postgres is unavailable; the recorder writes them later.
        """
        values = {f"frames_{name}": getattr(counts, name) for name in ("received", "similar", "evicted")}
        self._ended_s, self._end = time.monotonic(), values | {"audio_s": counts.audio_s, "reason": storable(reason)}
        self.write()

    def _forget_frames(self, frames: list[KeptFrame]) -> None:
        with self._lock:
            for frame in frames:
                self._waiting.popleft()
                self._waiting_bytes -= frame.image.nbytes

    def _write_end(self, values: Mapping[str, Any]) -> None:
        ended = update(LIVE_SESSION).where(LIVE_SESSION.c.session_id == self.session_id)
        with self._lock:
            counted = {"frames_kept": self._kept, "frames_lost": self._lost}
        ended_at = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, time.monotonic() - self._ended_s)
        with database_errors(), self.recorder.engine.begin() as connection:
            connection.execute(ended.values({**values, **counted, "ended_at": ended_at, "seen_at": func.now()}))

    def _next_part(self) -> list[KeptFrame]:
        """Return the next waiting frames of one size that fit into one file."""
        with self._lock:
            frames: list[KeptFrame] = []
            room = _PART_BYTES
            for frame in self._waiting:
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


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}".partition("\n")[0]


def _choice_index(answered: Answered) -> int | None:
    if answered.choices is None or answered.answer is None:
        return None
    return answered.choices.index(answered.answer)
