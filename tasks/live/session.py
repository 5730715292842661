"""One live session: frames are read as they come, and questions are answered about what has been read.

Two threads serve a session. One takes what has arrived in order: it has frames decoded, compared, acknowledged, and
read by the model (`intake`, `warming`), places audio among them (`hearing`), and at a query notes what it sees
(`kept`). The other answers queries one after the other (`answering`). Whoever holds the connection calls `receive` and
sends what is in the outbox.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError
from reelabel.text import pluralize
from tasks.live import messages, metrics
from tasks.live.answering import Answerer
from tasks.live.arrivals import Arrivals, Asked, Audio, Frame, ReadAgain
from tasks.live.frames import MAX_FRAME_BYTES, MAX_FRAME_PX
from tasks.live.hearing import Hearing
from tasks.live.intake import Intake
from tasks.live.kept import KeptFrames
from tasks.live.messages import ProtocolError
from tasks.live.outbox import Outbox
from tasks.live.setup import differences, speaks
from tasks.live.standing import Standing
from tasks.live.warming import EngineWatch, Warming

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.messages import EndReason
    from tasks.live.record.recording import Record
    from tasks.live.setup import LiveSetup

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.5
_END_S = 20.0
_MAX_IGNORED = 100


class Session:
    """A live session. Thread-safe; `receive` and `receive_data` do not block.

    Attributes:
        session_id: Its id.
        token: Lets its client resume it.
        outbox: What its client is told.
    """

    def __init__(
        self,
        config: messages.SessionConfig,
        setup: LiveSetup,
        *,
        session_id: str,
        token: str,
        record: Record | None = None,
        on_end: Callable[[Session], None] = lambda _session: None,
    ) -> None:
        """Begin.

        Args:
            config: What the client asks for.
            setup: What answers and decodes.
            session_id: Its id, which no session had before.
            token: Lets the client resume it.
            record: Where its frames and answers go.
            on_end: Called when it has ended.
        """
        self.session_id, self.token, self.outbox = session_id, token, Outbox()
        self._began_s = self._heard_s = time.monotonic()
        self._lost_s: float | None = None  # when the connection was lost
        self._config, self._setup, self._record, self._on_end = config, setup, record, on_end
        self._frames = self._bytes = self._connection = 0
        self._ignored: set[str] = set()  # unknown fields that the client knows to be ignored
        self._announced: messages.VideoFrame | messages.AudioChunk | None = None
        self._takes_audio = config.use_audio_in_video
        self._modalities = ("text", "audio") if speaks(config, setup) else ("text",)
        self._is_done = False
        self._alone = threading.Event()  # while nobody is connected
        self._alone.set()
        self._ending: EndReason | None = None
        self._lock = threading.Lock()
        self._arrivals, self._kept, watch = Arrivals(), KeptFrames(session_id, config), EngineWatch(self.outbox)
        self._intake = Intake(config, setup, self._kept, self.outbox, record, on_limit=lambda: self.end("limit"))
        self._hearing = Hearing(setup, self._kept, self.outbox, on_limit=lambda: self.end("limit"))
        self._warming = Warming(setup.model, self._kept, self._arrivals, self.outbox, watch)
        self._watch = watch
        setup.model.open(session_id)
        metrics.session_begins()
        self._answerer = Answerer(
            session_id, setup, config, self.outbox, record, watch=watch, on_done=self._answered_all
        )
        self._thread = threading.Thread(target=self._take_all, name="live-frames", daemon=True)
        self._thread.start()

    # Messages

    def begin(self) -> None:
        """Tell the client that the session has begun, and where it is otherwise than asked for."""
        self.greet()
        for notice in differences(self._config, self._setup):
            self.outbox.put(notice)
        self._note_unknown(self._config)

    def _note_unknown(self, message: messages.ClientMessage) -> None:
        """Tell the client once of each field that is ignored."""
        names = [name for name in messages.unknown_fields(message) if name not in self._ignored]
        if names and len(self._ignored) < _MAX_IGNORED:
            self._ignored.update(names)
            text = f"Unknown fields are ignored: {', '.join(names)}."
            self.outbox.put(messages.Notice(code="fields_ignored", message=text))

    def greet(self, *, is_resumed: bool = False) -> None:
        """Tell the client that the session has begun, or goes on."""
        settings, rule = self._setup.settings, self._kept.rule
        size = rule.size
        self.outbox.put(
            messages.SessionCreated(
                session_id=self.session_id,
                resume_token=self.token,
                resume_s=settings.resume_s,
                is_resumed=is_resumed,
                model=self._setup.info.model,
                modalities=self._modalities,
                takes_audio=self._setup.info.takes_audio,
                window=int(size) if size is not None and rule.unit == "frames" else None,
                window_s=size if rule.unit == "seconds" else None,
                sink=rule.sink,
                num_frames=self._config.num_frames,
                history=self._config.history,
                frame_filter_threshold=self._intake.threshold,
                limits=messages.SessionLimits(
                    idle_s=settings.idle_timeout_s,
                    total_s=settings.total_s,
                    max_frame_pixels=MAX_FRAME_PX,
                    max_message_bytes=messages.MAX_MESSAGE_BYTES,
                ),
            )
        )

    def receive(self, message: messages.ClientMessage) -> None:
        """Take a message.

        Raises:
            ProtocolError: It is refused.
        """
        self._heard_s = time.monotonic()
        match message:
            case messages.Ping():
                self.outbox.put(messages.Pong())
            case messages.StatsRequest():
                self.outbox.put(self.stats())
            case messages.ResponseCancel():
                self._answerer.cancel(message.query_id)
            case messages.SessionConfig() | messages.SessionResume():
                raise ProtocolError(
                    f"The session has already begun; {message.type} may only be sent once, and first.",
                    code="unexpected_message",
                )
            case messages.VideoDone() if self._is_done:
                pass  # said again, as its client cannot know whether it arrived
            case _:
                self._require_open()
                self._forget_announced()
                self._take(message)

    def receive_data(self, data: bytes) -> None:
        """Take a binary message: the frame or the audio that was announced, or a frame at its time of arrival.

        Raises:
            ProtocolError: It is refused.
        """
        self._heard_s = time.monotonic()
        self._require_open()
        announced = self._announced or messages.VideoFrame(type="video.frame")
        self._announced = None
        if isinstance(announced, messages.AudioChunk):
            self._take_audio(data, announced.time_s)
        else:
            self._take_frame(data, announced)

    def handle(self, received: str | bytes) -> None:
        """Take a message as it has arrived, and tell the client if that is not possible."""
        message = None
        try:
            if isinstance(received, bytes):
                self.receive_data(received)
            else:
                message = messages.parse_message(received)
                self._note_unknown(message)
                self.receive(message)
        except ProtocolError as refused:
            self.refuse(refused, message)
        except Exception:  # noqa: BLE001 - one message must not end the session
            self.refuse(self._failed("message"), message)

    def refuse(self, refused: ProtocolError, message: messages.ClientMessage | None = None) -> None:
        """Tell the client that a message was refused; end the session if it cannot go on."""
        query_id = message.query_id if isinstance(message, messages.VideoQuery) else None
        self.outbox.put(messages.ErrorEvent.of(refused, query_id=query_id))
        if refused.is_fatal:
            self.end("limit")

    def stats(self) -> messages.SessionStats:
        """Return what the session has taken and done so far."""
        counts, answerer = self._intake.counts, self._answerer
        return messages.SessionStats(
            age_s=time.monotonic() - self._began_s,
            frames=self._frames,
            kept=counts["kept"],
            similar=counts["similar"],
            evicted=counts["evicted"],
            refused=counts["refused"],
            left_window=self._kept.evicted,
            in_window=self._kept.in_window,
            audio_s=self._hearing.seconds,
            queries=answerer.asked,
            answered=answerer.answered,
            waiting=answerer.waiting,
            bytes=self._bytes,
            pixels=self._intake.pixels,
            engine_restarts=self._watch.losses,
        )

    def _require_open(self) -> None:
        if self._is_done:
            raise ProtocolError("No message may follow video.done.", code="unexpected_message")

    def _forget_announced(self) -> None:
        """Tell the client of a frame, or of audio, that it announced and did not send."""
        announced, self._announced = self._announced, None
        if announced is not None:
            self.outbox.put(
                messages.ErrorEvent(
                    code="unexpected_message",
                    message=f"{announced.type} without data announces a binary message, which did not follow.",
                    frame_id=announced.frame_id if isinstance(announced, messages.VideoFrame) else None,
                )
            )

    def _take(
        self, message: messages.VideoFrame | messages.AudioChunk | messages.VideoQuery | messages.VideoDone
    ) -> None:
        match message:
            case messages.VideoFrame() | messages.AudioChunk() if message.data is None:
                self._announced = message
            case messages.VideoFrame():
                self._take_frame(_decoded(message.data, of="video.frame"), message)
            case messages.AudioChunk():
                self._take_audio(_decoded(message.data, of="audio.chunk"), message.time_s)
            case messages.VideoQuery():
                if message.audio_data:
                    self._take_audio(_decoded(message.audio_data, of="audio_data"), None)
                if admitted := self._answerer.admit(message, arrived_s=self._heard_s):
                    self._arrivals.put(admitted)
            case messages.VideoDone():
                self._is_done = True
                self._arrivals.put(message)

    def _take_audio(self, data: bytes, time_s: float | None) -> None:
        samples = self._hearing.check(data)
        self._bytes += len(data)
        if self._takes_audio:
            self._arrivals.put(Audio(samples=samples, time_s=time_s, arrived_s=self._heard_s))

    def _take_frame(self, data: bytes, announced: messages.VideoFrame) -> None:
        frame = Frame(
            number=self._frames,
            data=data,
            announced=announced,
            arrived_s=self._heard_s,
            received_ms=time.time() * 1e3,
        )
        self._frames += 1
        self._bytes += len(data)
        if len(data) > MAX_FRAME_BYTES:
            text = f"The frame has {len(data):,} bytes; {MAX_FRAME_BYTES:,} are allowed."
            self._intake.refuse(frame, ProtocolError(text, code="frame_too_large"))
            return
        self._arrivals.put(frame)

    # The connection, and the end

    def connect(self) -> int:
        """Note a new connection, which replaces the one before; return its number."""
        with self._lock:
            self._connection += 1
            self._lost_s, self._heard_s = None, time.monotonic()
            self._announced = None
            self._alone.clear()
            return self._connection

    @property
    def ending(self) -> EndReason | None:
        """Why it ends, or has ended; None before."""
        return self._ending

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be taken that the connection should not be read for now."""
        return self._arrivals.is_full

    def on_room(self, call: Callable[[], None]) -> None:
        """Have `call` called, from any thread, when it is full no more."""
        self._arrivals.on_room(call)

    def is_current(self, connection: int) -> bool:
        """Return whether no later connection has replaced one."""
        return connection == self._connection

    def disconnect(self, connection: int) -> None:
        """Note that a connection is lost; the session waits for its client to come back."""
        with self._lock:
            if self.is_current(connection):
                self._lost_s = time.monotonic()
                self._announced = None
                self.outbox.watch(None)
                self._alone.set()

    def note_lost(self, events: int) -> None:
        """Tell the client that it cannot have some of the events that it missed."""
        text = f"{pluralize(events, 'event')} before these are no longer kept."
        self.outbox.put(messages.Notice(code="events_lost", message=text))

    def check_time(self) -> None:
        """End it if its time is over."""
        now_s, settings, answerer, lost_s = time.monotonic(), self._setup.settings, self._answerer, self._lost_s
        if self._ending:
            return
        answerer.check_deadlines(now_s)
        if lost_s is not None and now_s - lost_s > settings.resume_s:
            self.end("client_lost")
        elif now_s - self._began_s > settings.total_s:
            self._tell("limit_reached", f"The session has lasted {settings.total_s:g} seconds, which is the limit.")
            self.end("total_time")
        elif self.is_full:
            self._heard_s = now_s  # its client may be sending what is not received yet
        elif (
            lost_s is None
            and not answerer.waiting
            and now_s - max(self._heard_s, answerer.ended_s) > settings.idle_timeout_s
        ):
            self._tell("idle_timeout", f"Nothing was received for {settings.idle_timeout_s:g} seconds.")
            self.end("idle")

    def end(self, reason: EndReason) -> None:
        """Begin to end; queries that have not been answered are given up."""
        with self._lock:
            self._ending = self._ending or reason
        self._arrivals.close()
        self._answerer.give_up()

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until it has ended, and its client, if it is connected, has been told."""
        deadline_s = time.monotonic() + timeout_s
        self._thread.join(timeout_s)
        self._alone.wait(max(0.0, deadline_s - time.monotonic()))

    def _tell(self, code: messages.ErrorCode, message: str) -> None:
        self.outbox.put(messages.ErrorEvent(code=code, message=message))

    # The thread that takes what has arrived

    def _take_all(self) -> None:
        try:
            while (arrived := self._arrivals.next()) is not None:
                match arrived:
                    case Frame() | Audio() | Asked():
                        self._take_alone(arrived)
                        self._ask_due()
                    case Standing():
                        self._ask_due()
                    case ReadAgain():
                        self._arrivals.pause(_PAUSE_S)
                        self._warming.warm_again()
                    case messages.VideoDone():
                        self._answerer.finish()
        except Exception:  # noqa: BLE001 - one session must not end the server
            _LOG.exception("The live session %s failed", self.session_id)
            self._tell("internal", "The session failed; the server's log says why.")
            self.end("error")
        self._finish()

    def _take_alone(self, arrived: Frame | Audio | Asked) -> None:
        """Take what has arrived; tell the client if that fails, and go on."""
        has_more = False
        try:
            match arrived:
                case Frame():
                    has_more = self._intake.take(arrived)
                case Audio():
                    has_more = self._hearing.take(arrived)
                case Asked():
                    self._answerer.put(arrived, self._kept.see(arrived))
        except Exception:  # noqa: BLE001 - one message must not end the session
            match arrived:
                case Frame():
                    self._intake.refuse(arrived, self._failed("frame"))
                case Audio():
                    self.refuse(self._failed("audio"))
                case Asked():
                    self._answerer.fail(arrived, self._failed("query"))
        if has_more:
            self._warming.warm()

    def _ask_due(self) -> None:
        """Have the standing questions asked whose time has come."""
        if self._kept.clock is None:
            return
        time_s, arrived_s = self._kept.clock
        for standing in self._answerer.standing:
            asked = None
            try:
                if standing.is_due(time_s):
                    asked = self._answerer.ask_again(standing, time_s=time_s, arrived_s=arrived_s)
                    self._answerer.put(asked, self._kept.see(asked))
            except Exception:  # noqa: BLE001 - one question must not end the session
                failed = self._failed("query")
                if asked:
                    self._answerer.fail(asked, failed)
                else:
                    self.refuse(failed)

    def _failed(self, what: str) -> ProtocolError:
        """Log the error that is being handled; return what the client is told."""
        _LOG.exception("The %s of the live session %s failed", what, self.session_id)
        return ProtocolError(f"The {what} failed; the server's log says why.", code="internal")

    def _answered_all(self) -> None:
        self.outbox.put(messages.SessionDone())
        self.end("done")

    def _finish(self) -> None:
        self._setup.model.forget(self.session_id)  # an answer in progress is given up
        self._answerer.join(_END_S)
        assert self._ending
        if self._record:
            try:
                self._record.close(self._ending, self.stats())
            except ReelabelError as error:
                _LOG.warning(
                    "The end of the live session %s will be recorded later: %s", self.session_id, error.message
                )
        metrics.session_ends()
        self._on_end(self)
        self.outbox.put(messages.SessionClosed(reason=self._ending))
        self.outbox.close()


def _decoded(data: str | None, *, of: str) -> bytes:
    return messages.decode_base64(data or "", what=f"The data of {of}")
