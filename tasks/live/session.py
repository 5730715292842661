"""One live session: a state machine on the event loop.

Its connection passes messages to `handle` and sends the events of `events`. One task processes messages in order, one
prefills kept frames, one answers queries, and one watches the time. Blocking calls run in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError, TransientError
from reelabel.text import escape_controls, pluralize
from reelabel_engine.live_items import AUDIO_HZ
from tasks.live import events, messages, metrics
from tasks.live.event_log import EngineStatus, EventLog
from tasks.live.frame_intake import FrameIntake
from tasks.live.inbox import Audio, Frame, Inbox
from tasks.live.media import MAX_FRAME_BYTES, MAX_FRAME_PX, read_samples
from tasks.live.messages import ProtocolError
from tasks.live.pending import PendingQuery
from tasks.live.queries import Queries
from tasks.live.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tasks.live.events import EndReason
    from tasks.live.record.recorder import SessionRecord
    from tasks.live.setup import LiveSetup

_LOG = logging.getLogger(__name__)
_CHECK_S = 0.5
# Seconds without a message, and of a session at most, after which it ends.
_IDLE_S, _TOTAL_S = 60.0, 86_400.0
_MAX_IGNORED = 100


class _SessionEnded(Exception): ...  # noqa: N818 - no error


class Session:
    """A live session. All of it runs on one event loop."""

    def __init__(
        self,
        config: messages.SessionConfig,
        setup: LiveSetup,
        *,
        session_id: str,
        token: str,
        record: SessionRecord | None = None,
    ) -> None:
        """Begin a session under an id that no other had; `run` does the work."""
        self.session_id, self.token = session_id, token
        self.events = EventLog()
        self.ending: EndReason | None = None
        self.is_disconnected = asyncio.Event()  # set while it has no connection
        self.is_disconnected.set()
        self._is_not_lost = asyncio.Event()  # unset while its client may come back
        self._is_not_lost.set()
        self._config, self._setup, self._record = config, setup, record
        self._began_s = self._last_message_s = time.monotonic()
        self._lost_s: float | None = None  # when the connection was lost
        self._replaced: asyncio.Event | None = None  # of the connection
        self._is_ending = asyncio.Event()
        self._ignored: set[str] = set()  # unknown fields that have been reported
        self._announced: messages.VideoFrame | messages.AudioChunk | None = None
        self._is_done = False
        self._frames = self._bytes = self._samples = 0  # received
        self.inbox, self._engine = Inbox(), EngineStatus(self.events)
        self._intake = FrameIntake(session_id, config, setup, events=self.events, engine=self._engine, record=record)
        self._queries = Queries(session_id, config, setup, events=self.events, engine=self._engine, record=record)
        setup.model.open(session_id)
        metrics.SESSIONS.add(1)
        self.greet()
        self._note_differences()
        self._note_unknown(config)

    # Messages

    def greet(self, *, is_resumed: bool = False) -> None:
        settings, rule = self._setup.settings, self._intake.window.rule
        size = rule.size
        self.events.send(
            events.SessionCreated(
                session_id=self.session_id,
                resume_token=self.token,
                resume_s=settings.resume_s,
                is_resumed=is_resumed,
                model=self._setup.info.model,
                modalities=("text", "audio") if self._setup.produces_speech(self._config) else ("text",),
                takes_audio=self._setup.info.takes_audio,
                window=int(size) if size is not None and rule.unit == "frames" else None,
                window_s=size if rule.unit == "seconds" else None,
                sink=rule.sink,
                num_frames=self._config.num_frames,
                history=self._config.history,
                frame_filter_threshold=self._intake.threshold,
                limits=events.SessionLimits(
                    idle_s=_IDLE_S,
                    total_s=_TOTAL_S,
                    max_frame_pixels=MAX_FRAME_PX,
                    max_message_bytes=messages.MAX_MESSAGE_BYTES,
                ),
            )
        )

    def _note_differences(self) -> None:
        """Notify the client where its session differs from what it requested."""
        config, info = self._config, self._setup.info
        if config.model not in {None, info.model}:
            text = f"The model {escape_controls(config.model or '')} is not served here; {info.model} answers."
            self.events.send(events.Notice(code="other_model", message=text))
        if "text" not in config.modalities and not info.produces_speech:
            text = f"The model {info.model} does not speak; answers come as text."
            self.events.send(events.Notice(code="no_speech", message=text))

    def _note_unknown(self, message: messages.ClientMessage) -> None:
        """Report each ignored field once."""
        names = [name for name in messages.pop_unknown_fields(message) if name not in self._ignored]
        if names and len(self._ignored) < _MAX_IGNORED:
            self._ignored.update(names)
            text = f"Unknown fields are ignored: {', '.join(names)}."
            self.events.send(events.Notice(code="fields_ignored", message=text))

    def handle(self, received: str | bytes) -> None:
        message = None
        with self._refusing("message", lambda error: self.refuse(error, message)):
            if isinstance(received, bytes):
                self.receive_data(received)
            else:
                message = messages.parse_message(received)
                self._note_unknown(message)
                self.receive(message)

    @contextmanager
    def _refusing(self, what: str, refuse: Callable[[ProtocolError], None]) -> Iterator[None]:
        """Turn any error into a refusal: not even a defect may end the session."""
        try:
            yield
        except ProtocolError as error:
            refuse(error)
        except TransientError as error:
            refuse(ProtocolError(error.message, code="unavailable"))
        except Exception:  # noqa: BLE001 - whatever it is
            _LOG.exception("The %s of the live session %s failed", what, self.session_id)
            refuse(ProtocolError(f"The {what} failed; the server's log says why.", code="internal"))

    def receive(self, message: messages.ClientMessage) -> None:
        self._last_message_s = time.monotonic()
        match message:
            case messages.Ping():
                self.events.send(events.Pong())
            case messages.StatsRequest():
                self.events.send(self.stats())
            case messages.ResponseCancel():
                self._queries.cancel(message.query_id)
            case messages.SessionConfig() | messages.SessionResume():
                raise ProtocolError(
                    f"The session has already begun; {message.type} may only be sent once, and first.",
                    code="unexpected_message",
                )
            case messages.VideoDone() if self._is_done:
                pass  # sent again after its connection was lost
            case messages.VideoQuery() if self._queries.is_repeated(message):
                pass
            case _:
                self._check_open()
                self._forget_announced()
                self._accept(message)

    def receive_data(self, data: bytes) -> None:
        self._last_message_s = time.monotonic()
        self._check_open()
        announced = self._announced or messages.VideoFrame(type="video.frame")
        self._announced = None
        if isinstance(announced, messages.AudioChunk):
            self._accept_audio(data, announced.time_s)
        else:
            self._accept_frame(data, announced)

    def refuse(self, error: ProtocolError, message: messages.ClientMessage | None = None) -> None:
        """Report why a message is refused; end the session if the error is fatal."""
        query_id = message.query_id if isinstance(message, messages.VideoQuery) else None
        frame_id = message.frame_id if isinstance(message, messages.VideoFrame) else None
        self.events.send(events.ErrorEvent.of(error, query_id=query_id, frame_id=frame_id))
        if error.is_fatal:
            self.end("limit")

    def stats(self) -> events.SessionStats:
        counts, window, queries = self._intake.counts, self._intake.window, self._queries
        return events.SessionStats(
            age_s=time.monotonic() - self._began_s,
            frames=self._frames,
            kept=counts["kept"],
            similar=counts["similar"],
            evicted=counts["evicted"],
            refused=counts["refused"],
            left_window=window.evicted,
            in_window=window.in_window,
            audio_s=self._samples / AUDIO_HZ,
            queries=queries.count,
            answered=queries.answered,
            waiting=queries.waiting,
            bytes=self._bytes,
            pixels=self._intake.pixels,
            engine_restarts=self._engine.losses,
        )

    def _check_open(self) -> None:
        if self._is_done:
            raise ProtocolError("No message may follow video.done.", code="unexpected_message")

    def _forget_announced(self) -> None:
        announced, self._announced = self._announced, None
        if announced is not None:
            self.events.send(
                events.ErrorEvent(
                    code="unexpected_message",
                    message=f"{announced.type} without data announces a binary message, which did not follow.",
                    frame_id=announced.frame_id if isinstance(announced, messages.VideoFrame) else None,
                )
            )

    def _accept(
        self, message: messages.VideoFrame | messages.AudioChunk | messages.VideoQuery | messages.VideoDone
    ) -> None:
        match message:
            case messages.VideoFrame(data=str(data)):
                picture = messages.decode_base64(data, of="video.frame")
                self._accept_frame(picture, message.model_copy(update={"data": None}))
            case messages.AudioChunk(data=str(data)):
                self._accept_audio(messages.decode_base64(data, of="audio.chunk"), message.time_s)
            case messages.VideoFrame() | messages.AudioChunk():
                self._announced = message
            case messages.VideoQuery():
                if message.audio_data:
                    self._accept_audio(messages.decode_base64(message.audio_data, of="audio_data"), None)
                    message = message.model_copy(update={"audio_data": None})
                self.inbox.put(self._queries.admit(message, arrived_s=self._last_message_s))
            case messages.VideoDone():
                self._is_done = True
                self.inbox.put(message)

    def _accept_audio(self, data: bytes, time_s: float | None) -> None:
        samples = read_samples(data, self._setup.info)
        self._bytes += len(data)
        self._samples += len(samples)
        if self._config.use_audio_in_video:
            self.inbox.put(Audio(samples=samples, time_s=time_s, arrived_s=self._last_message_s))

    def _accept_frame(self, data: bytes, announced: messages.VideoFrame) -> None:
        frame = Frame(
            number=self._frames,
            data=data,
            announced=announced,
            arrived_s=self._last_message_s,
            received_ms=time.time() * 1e3,
        )
        self._frames += 1
        self._bytes += len(data)
        if len(data) > MAX_FRAME_BYTES:
            text = f"The frame has {len(data):,} bytes; {MAX_FRAME_BYTES:,} are allowed."
            self._intake.refuse(frame, ProtocolError(text, code="frame_too_large"))
        else:
            self.inbox.put(frame)

    # The connection

    def connect(self) -> asyncio.Event:
        """Note a new connection; return the event that is set when another one replaces it."""
        if self._replaced:
            self._replaced.set()
        self._replaced = replaced = asyncio.Event()
        self._lost_s, self._last_message_s, self._announced = None, time.monotonic(), None
        self.is_disconnected.clear()
        self._is_not_lost.set()
        return replaced

    def disconnect(self, replaced: asyncio.Event) -> None:
        """Note the loss of the connection to which `connect` gave this event; its client may resume the session."""
        if self._replaced is replaced:
            self._replaced = self._announced = None
            self._lost_s = time.monotonic()
            self.is_disconnected.set()
            self._is_not_lost.clear()

    def note_lost(self, missed: int) -> None:
        text = f"{pluralize(missed, 'event')} before these are no longer kept."
        self.events.send(events.Notice(code="events_lost", message=text))

    # The tasks

    async def run(self, on_end: Callable[[], None]) -> None:
        """Do the work of the session until it ends; call `on_end` before `session.closed` is sent."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._ingest, self._intake.prefill, self._answer, self._watch_deadlines):
                    tasks.create_task(work())
        except* _SessionEnded:
            pass
        except* Exception:  # noqa: BLE001 - one session must not end the server
            _LOG.exception("The live session %s failed", self.session_id)
            self._send_error("internal", "The session failed; the server's log says why.")
            self.end("error")
        await in_thread(self._setup.model.close_session, self.session_id)
        if self._record:
            await self._record_end(self._record)
        metrics.SESSIONS.add(-1)
        on_end()
        self.events.send(events.SessionClosed(reason=self.ending or "error"))
        self.events.close()

    def end(self, reason: EndReason) -> None:
        """Begin to end the session; open queries are not answered."""
        self.ending = self.ending or reason
        self._is_ending.set()

    async def _record_end(self, record: SessionRecord) -> None:
        assert self.ending
        stats = self.stats()
        try:
            await in_thread(
                record.close,
                reason=self.ending,
                frames_received=stats.frames,
                frames_similar=stats.similar,
                frames_evicted=stats.evicted,
                audio_s=stats.audio_s,
            )
        except ReelabelError as error:
            _LOG.warning("The end of the live session %s will be recorded later: %s", self.session_id, error.message)
        except Exception:  # noqa: BLE001 - its client is notified all the same
            _LOG.exception("The end of the live session %s cannot be recorded", self.session_id)

    async def _watch_deadlines(self) -> None:
        while not self.ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._is_ending.wait()
            self.check_time()
        raise _SessionEnded

    def check_time(self) -> None:
        now_s, lost_s = time.monotonic(), self._lost_s
        idle_since_s = max(self._last_message_s, self._queries.ended_s)
        if self.ending:
            return
        if lost_s is not None and now_s - lost_s > self._setup.settings.resume_s:
            self.end("client_lost")
        elif now_s - self._began_s > _TOTAL_S:
            self._send_error("limit_reached", f"The session has lasted {_TOTAL_S:g} seconds, which is the limit.")
            self.end("total_time")
        elif not self.inbox.is_empty:
            self._last_message_s = now_s  # its client may be waiting for room to send more
        elif lost_s is None and not self._queries.waiting and now_s - idle_since_s > _IDLE_S:
            self._send_error("idle_timeout", f"Nothing was received for {_IDLE_S:g} seconds.")
            self.end("idle")

    def _send_error(self, code: messages.ErrorCode, message: str) -> None:
        self.events.send(events.ErrorEvent(code=code, message=message, is_fatal=True))

    async def _answer(self) -> None:
        await self._queries.answer_all()
        self.events.send(events.SessionDone())
        await self._is_not_lost.wait()  # for a client that comes back to its answers
        self.end("done")

    async def _ingest(self) -> None:
        """Process messages strictly in order; this never waits for the model."""
        while not isinstance(arrival := await self.inbox.get(), messages.VideoDone):
            match arrival:
                case Frame():
                    with self._refusing("frame", partial(self._intake.refuse, arrival)):
                        await self._intake.add(arrival)
                        self._check_window()
                case Audio():
                    with self._refusing("audio", self.refuse):
                        self._intake.add_audio(arrival)
                        self._check_window()
                case PendingQuery():
                    self._put(arrival)
            self._ask_standing(arrival.arrived_s)
        self._queries.finish()

    def _check_window(self) -> None:
        if self._intake.exceeds_limit and not self.ending:
            text = (
                f"A query would see more than {self._setup.settings.max_window_frames:,} frames and spans of audio, "
                "which is the limit; configure a smaller window."
            )
            self.refuse(ProtocolError(text, code="limit_reached", is_fatal=True))

    def _put(self, pending: PendingQuery) -> None:
        with self._refusing("query", partial(self._queries.fail, pending)):
            self._queries.put(pending, self._intake.window.visible(pending))

    def _ask_standing(self, now_s: float) -> None:
        if self._intake.window.clock:
            time_s, _ = self._intake.window.clock
            for standing in self._queries.standing:
                with self._refusing("query", self.refuse):
                    if standing.is_due(time_s):
                        self._put(self._queries.ask_standing(standing, time_s=time_s, arrived_s=now_s))
