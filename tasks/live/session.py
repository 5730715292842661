"""One live session: frames are read as they come, and questions are answered about what has been read.

Two threads serve a session. One takes what has arrived in order: it decodes frames, compares and acknowledges them, and
has the model read them; at a query it notes what the query sees. The other answers queries one after the other, so that
frames go on arriving meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from infra.errors import EngineLostError, PromptTooLongError
from reelabel.errors import ReelabelError, TransientError
from reelabel.sampling.similar import mean_colours, similarity
from reelabel.wording import pluralize
from tasks.live import protocol
from tasks.live.answering import Answerer, Asked, Seen
from tasks.live.items import Pairs
from tasks.live.model import Prefix
from tasks.live.outbox import Outbox
from tasks.live.protocol import MessageRefusedError
from tasks.live.setup import window_rule
from tasks.live.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt

    from tasks.live.answering import Record
    from tasks.live.items import LiveItem
    from tasks.live.model import Warmed
    from tasks.live.protocol import EndReason
    from tasks.live.setup import LiveSetup

_LOG = logging.getLogger(__name__)
_MAX_WAITING = 64  # queries
_WARMING = 2  # one prefix is being read, and one waits; later frames wait undecoded, and the newest replaces the others
_PAUSE_S = 0.5
_END_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A frame that has arrived."""

    number: int
    data: bytes = field(repr=False)
    announced: protocol.VideoFrame
    arrived_s: float  # of the monotonic clock
    received_ms: float  # Unix time


@dataclass(slots=True)
class _Counts:
    frames: int = 0
    kept: int = 0
    similar: int = 0
    busy: int = 0
    evicted: int = 0
    refused: int = 0
    queries: int = 0
    answered: int = 0
    bytes: int = 0
    pixels: int = 0
    warmed: int = 0
    warm_ms: float | None = None
    cached_tokens: int | None = None
    engine_restarts: int = 0


class Session:
    """A live session. Thread-safe; `receive` and `receive_frame` do not block.

    Attributes:
        session_id: Its id.
        token: Lets its client resume it.
        outbox: What its client is told.
        heard_s: When its client was last heard, by the monotonic clock.
        lost_s: When its connection was lost; None while it has one.
    """

    def __init__(
        self,
        config: protocol.SessionConfig,
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
        self.began_s = self.heard_s = time.monotonic()
        self.lost_s: float | None = None
        self._config, self._setup, self._record, self._on_end = config, setup, record, on_end
        self._window, self._pairs = Window(window_rule(config)), Pairs()
        self._threshold = config.frame_filter_threshold if config.enable_frame_filter else None
        self._cells: npt.NDArray[np.float64] | None = None  # of the last kept frame
        self._last: tuple[float, int, str | None] = (0.0, 0, None)  # its time, its number, its client's id of it
        self._origin: tuple[float, float] | None = None  # the first kept frame's own time, and its arrival
        self._counts = _Counts()
        self._changed = threading.Condition()
        self._inbox: deque[_Frame | Asked | protocol.VideoDone] = deque()
        self._announced: protocol.VideoFrame | None = None
        self._warming = self._connection = 0
        self._waiting = 0  # queries
        self._is_lost = self._must_warm = self._is_too_long = self._is_done = False
        self._ending: EndReason | None = None
        self._asked: SimpleQueue[tuple[Asked, Seen] | None] = SimpleQueue()
        self._answerer = Answerer(
            setup, config, self.outbox, record, is_ending=lambda: self._ending is not None, on_loss=self._note_loss
        )
        setup.model.open(session_id)
        self._answers = threading.Thread(target=self._answer_all, name="live-answers", daemon=True)
        self._frames = threading.Thread(target=self._take_all, name="live-frames", daemon=True)
        self._answers.start()
        self._frames.start()

    # What the connection calls

    def greet(self, *, is_resumed: bool = False) -> None:
        """Tell the client that the session has begun, or goes on."""
        limits, rule = self._setup.limits, self._window.rule
        size = rule.size
        self.outbox.put(
            protocol.SessionCreated(
                session_id=self.session_id,
                resume_token=self.token,
                resume_s=limits.resume_s,
                is_resumed=is_resumed,
                model=self._setup.info.model,
                modalities=("text",),
                window=int(size) if size is not None and rule.unit == "frames" else None,
                window_s=size if rule.unit == "seconds" else None,
                sink=rule.sink,
                frame_filter_threshold=self._threshold,
                limits=protocol.SessionLimits(
                    idle_s=limits.idle_s,
                    total_s=limits.total_s,
                    max_frames=limits.max_frames,
                    max_bytes=limits.max_bytes,
                    max_pixels=limits.max_pixels,
                    max_frame_pixels=limits.max_native_px,
                    max_message_bytes=limits.max_message_bytes,
                ),
            )
        )

    def receive(self, message: protocol.ClientMessage) -> None:
        """Take a message.

        Raises:
            MessageRefusedError: It is refused.
        """
        self.heard_s = time.monotonic()
        match message:
            case protocol.Ping():
                self.outbox.put(protocol.Pong())
            case protocol.StatsRequest():
                self.outbox.put(self.stats())
            case protocol.SessionConfig() | protocol.SessionResume():
                raise MessageRefusedError(
                    f"The session has begun already; {message.type} comes first, and once.", code="unexpected_message"
                )
            case _:
                self._require_open()
                self._forget_announced()
                self._take(message)

    def _take(
        self, message: protocol.VideoFrame | protocol.AudioChunk | protocol.VideoQuery | protocol.VideoDone
    ) -> None:
        match message:
            case protocol.VideoFrame():
                if message.data is None:
                    self._announced = message
                else:
                    self._arrive(protocol.decode_base64(message.data, what="The data of video.frame"), message)
            case protocol.VideoQuery():
                self._ask(message)
            case protocol.AudioChunk():
                raise MessageRefusedError(
                    f"The model {self._setup.info.model} takes no audio; send frames only.", code="audio_unsupported"
                )
            case protocol.VideoDone():
                self._is_done = True
                with self._changed:
                    self._inbox.append(message)
                    self._changed.notify_all()

    def _require_open(self) -> None:
        if self._is_done:
            raise MessageRefusedError("Nothing follows video.done.", code="unexpected_message")

    def _forget_announced(self) -> None:
        """Tell the client of a frame that it announced and did not send."""
        announced, self._announced = self._announced, None
        if announced is not None:
            self.outbox.put(
                protocol.ErrorEvent(
                    code="unexpected_message",
                    message="A video.frame without data announces a binary message, which did not follow.",
                    frame_id=announced.frame_id,
                )
            )

    def receive_frame(self, data: bytes) -> None:
        """Take a binary message: the frame that was announced, or one at its time of arrival.

        Raises:
            MessageRefusedError: It is refused.
        """
        self.heard_s = time.monotonic()
        self._require_open()
        announced = self._announced or protocol.VideoFrame(type="video.frame")
        self._announced = None
        self._arrive(data, announced)

    def refuse(self, refused: MessageRefusedError, message: protocol.ClientMessage | None = None) -> None:
        """Tell the client that a message was refused; end the session if it cannot go on."""
        self.outbox.put(
            protocol.ErrorEvent(
                code=refused.code,
                message=refused.message,
                query_id=message.query_id if isinstance(message, protocol.VideoQuery) else None,
                is_fatal=refused.is_fatal,
            )
        )
        if refused.is_fatal:
            self.end("limit")

    def connect(self) -> int:
        """Note a new connection, which replaces the one before; return its number."""
        with self._changed:
            self._connection += 1
            self.lost_s, self.heard_s = None, time.monotonic()
            self._announced = None
            return self._connection

    def is_current(self, connection: int) -> bool:
        """Return whether no later connection has replaced one."""
        return connection == self._connection

    def disconnect(self, connection: int) -> None:
        """Note that a connection is lost; the session waits for its client to come back."""
        with self._changed:
            if self.is_current(connection):
                self.lost_s = time.monotonic()
                self._announced = None
                self.outbox.watch(None)

    def note_lost(self, events: int) -> None:
        """Tell the client that it cannot have some of the events that it missed."""
        text = f"{pluralize(events, 'event')} before these are no longer kept."
        self.outbox.put(protocol.Notice(code="events_lost", message=text))

    def end(self, reason: EndReason) -> None:
        """Begin to end; queries that have not been answered are given up."""
        with self._changed:
            self._ending = self._ending or reason
            self._changed.notify_all()
        self._asked.put(None)

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until it has ended."""
        self._frames.join(timeout_s)

    def check_time(self) -> None:
        """End it if its time is over."""
        now_s, limits = time.monotonic(), self._setup.limits
        if self._ending:
            return
        if self.lost_s is not None and now_s - self.lost_s > limits.resume_s:
            self.end("client_lost")
        elif now_s - self.began_s > limits.total_s:
            self._say_why("limit_reached", f"The session has lasted {limits.total_s:g} seconds, which is the limit.")
            self.end("total_time")
        elif self.lost_s is None and not self._waiting and now_s - self.heard_s > limits.idle_s:
            self._say_why("idle_timeout", f"Nothing was received for {limits.idle_s:g} seconds.")
            self.end("idle")

    def stats(self) -> protocol.SessionStats:
        """Return what the session has taken and done so far."""
        counts = self._counts
        return protocol.SessionStats(
            age_s=time.monotonic() - self.began_s,
            frames=counts.frames,
            kept=counts.kept,
            similar=counts.similar,
            busy=counts.busy,
            evicted=counts.evicted,
            refused=counts.refused,
            left_window=self._window.evicted,
            in_window=self._in_window,
            audio_s=0.0,
            queries=counts.queries,
            answered=counts.answered,
            waiting=self._waiting,
            bytes=counts.bytes,
            pixels=counts.pixels,
            warmed=counts.warmed,
            warm_ms=counts.warm_ms,
            cached_tokens=counts.cached_tokens,
            engine_restarts=counts.engine_restarts,
        )

    # Arrivals

    @property
    def _in_window(self) -> int:
        return sum(item.frames for item in self._seen_items())

    def _seen_items(self) -> tuple[LiveItem, ...]:
        alone = self._pairs.alone
        return (*self._window.current, *((alone,) if alone else ()))

    def _arrive(self, data: bytes, announced: protocol.VideoFrame) -> None:
        counts, limits = self._counts, self._setup.limits
        frame = _Frame(
            number=counts.frames,
            data=data,
            announced=announced,
            arrived_s=self.heard_s,
            received_ms=time.time() * 1e3,
        )
        counts.frames += 1
        counts.bytes += len(data)
        if len(data) > limits.max_frame_bytes:
            refused = MessageRefusedError(
                f"The frame has {len(data):,} bytes; {limits.max_frame_bytes:,} are allowed.", code="frame_too_large"
            )
            self._refuse_frame(frame, refused)
            return
        if counts.frames > limits.max_frames:
            raise _limit_reached(f"{limits.max_frames:,} frames")
        if counts.bytes > limits.max_bytes:
            raise _limit_reached(f"{limits.max_bytes:,} bytes")
        with self._changed:
            waiting = self._inbox[-1] if self._inbox else None
            if isinstance(waiting, _Frame):
                self._inbox.pop()
            self._inbox.append(frame)
            self._changed.notify_all()
        if isinstance(waiting, _Frame):
            self._acknowledge(waiting, "busy")

    def _ask(self, query: protocol.VideoQuery) -> None:
        if query.audio_data:
            raise MessageRefusedError(
                f"The model {self._setup.info.model} takes no audio; leave out audio_data.", code="audio_unsupported"
            )
        with self._changed:
            if self._waiting >= _MAX_WAITING:
                raise MessageRefusedError(
                    f"{_MAX_WAITING} queries wait already; wait for their answers.", code="too_many_queries"
                )
            asked = Asked(number=self._counts.queries, query=query, arrived_s=self.heard_s)
            self._counts.queries += 1
            self._waiting += 1
            self._inbox.append(asked)
            self._changed.notify_all()

    # The thread that takes what has arrived

    def _take_all(self) -> None:
        try:
            while (arrived := self._next()) is not None:
                match arrived:
                    case _Frame():
                        self._take_frame(arrived)
                    case Asked():
                        self._asked.put((arrived, self._see(arrived)))
                    case protocol.VideoDone():
                        self._asked.put(None)
        except Exception:  # noqa: BLE001 - one session must not end the server
            _LOG.exception("The live session %s failed", self.session_id)
            self._say_why("internal", "The session failed; the server's log says why.")
            self.end("error")
        self._finish()

    def _next(self) -> _Frame | Asked | protocol.VideoDone | None:
        """Wait for what comes next; None ends the session.

        A frame waits while the model is behind, unless a query comes after it, which goes first and should see it.
        """
        with self._changed:
            while not self._ending:
                if self._must_warm and not self._warming:
                    self._must_warm = False
                    self._changed.wait(_PAUSE_S)
                    self._warm()
                if self._inbox and (
                    self._warming < _WARMING
                    or not isinstance(self._inbox[0], _Frame)
                    or any(isinstance(each, Asked) for each in self._inbox)
                ):
                    return self._inbox.popleft()
                self._changed.wait()
        return None

    def _take_frame(self, frame: _Frame) -> None:
        time_s = self._time_of(frame)
        if self._origin is not None and time_s < self._last[0]:
            self._acknowledge(frame, "evicted", time_s=time_s)
            return
        try:
            picture = self._setup.reader.read(frame.data)
        except MessageRefusedError as refused:
            self._refuse_frame(frame, refused)
            return
        except TransientError as error:
            self._refuse_frame(frame, MessageRefusedError(error.message, code="unavailable"))
            return
        self._counts.pixels += picture.decoded_px
        if self._counts.pixels > (most := self._setup.limits.max_pixels):
            self._refuse_frame(frame, _limit_reached(f"{most:,} pixels"))
            self.end("limit")
            return
        cells = mean_colours(picture.image)
        alike = None if self._cells is None else similarity(cells, self._cells)
        if alike is not None and self._threshold is not None and alike > self._threshold:
            self._acknowledge(frame, "similar", time_s=time_s, alike=alike)
            return
        self._cells = cells
        self._keep(frame, picture.image, time_s=time_s, alike=alike)

    def _time_of(self, frame: _Frame) -> float:
        """Return a frame's time, in seconds since the first kept frame."""
        if self._origin is None:
            return 0.0
        own_s = frame.announced.own_time_s
        return frame.arrived_s - self._origin[1] if own_s is None else own_s - self._origin[0]

    def _keep(self, frame: _Frame, image: npt.NDArray[np.uint8], *, time_s: float, alike: float | None) -> None:
        if self._origin is None:
            own_s = frame.announced.own_time_s
            self._origin = (frame.arrived_s if own_s is None else own_s, frame.arrived_s)
        self._last = (time_s, frame.number, frame.announced.frame_id)
        if self._record:
            self._record.keep(time_s=time_s, image=image)
        complete = self._pairs.add(image, time_s)
        evicted = sum(gone.frames for item in complete for gone in self._window.add(item))
        self._acknowledge(frame, "kept", time_s=time_s, alike=alike, evicted=evicted)
        if self._in_window > (most := self._setup.limits.max_window_frames):
            self._say_why(
                "limit_reached",
                f"A query would see more than {most:,} frames, which is the limit; configure a smaller window.",
                is_fatal=True,
            )
            self.end("limit")
        elif complete:
            self._warm()

    def _see(self, asked: Asked) -> Seen:
        """Note what a query sees."""
        items, sink = self._seen_items(), self._window.sink
        prefix = None
        if items:
            prefix = Prefix(session=self.session_id, items=items, system_prompt=self._config.system_prompt)
        after_sink = items[len(sink) :] or items[-1:]
        origin_s = self._origin[1] if self._origin else asked.arrived_s
        return Seen(
            query=asked.number,
            prefix=prefix,
            asked_s=asked.arrived_s - origin_s,
            arrived_s=asked.arrived_s,
            sink_frames=sum(item.frames for item in sink),
            first_frame_s=after_sink[0].times_s[0] if after_sink else 0.0,
            last_frame_s=self._last[0],
            last_frame=self._last[1:],
            evicted=self._window.evicted,
        )

    def _warm(self) -> None:
        """Have the model read the frames, those of the following window last."""
        prompt = self._config.system_prompt
        for items, following in ((self._window.current, False), (self._window.following, True)):
            if not items:
                continue
            if not following:
                self._warming += 1
            prefix = Prefix(session=self.session_id, items=items, system_prompt=prompt)
            warmed = self._setup.model.warm(prefix, following=following)
            warmed.add_done_callback(self._was_following if following else self._was_warmed)

    def _was_following(self, future: Future[Warmed]) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, ReelabelError):
            _LOG.error("The live session %s could not read its next window", self.session_id, exc_info=error)

    def _was_warmed(self, future: Future[Warmed]) -> None:
        error = future.exception()
        if error is None and not (warmed := future.result()).is_dropped:
            counts = self._counts
            counts.warmed += 1
            counts.warm_ms, counts.cached_tokens = warmed.total_ms, warmed.cached_tokens
            self._note_back()
        with self._changed:
            self._warming -= 1
            self._must_warm |= isinstance(error, EngineLostError)
            self._changed.notify_all()
        match error:
            case None:
                pass
            case EngineLostError():
                self._note_loss()
            case PromptTooLongError():
                if not self._is_too_long:
                    self._is_too_long = True
                    self._say_why("prompt_too_long", f"{error.message} Configure a smaller window.")
            case _:
                _LOG.error("The live session %s could not read its frames", self.session_id, exc_info=error)

    def _note_loss(self) -> None:
        with self._changed:
            was_lost, self._is_lost = self._is_lost, True
        if not was_lost:
            self._counts.engine_restarts += 1
            text = "The engine was lost, and starts again; the kept frames are read again, and queries wait."
            self.outbox.put(protocol.Notice(code="engine_lost", message=text))

    def _note_back(self) -> None:
        with self._changed:
            was_lost, self._is_lost = self._is_lost, False
        if was_lost:
            self.outbox.put(protocol.Notice(code="engine_back", message="The engine answers again."))

    # The thread that answers

    def _answer_all(self) -> None:
        while (asked := self._asked.get()) is not None and not self._ending:
            try:
                if self._answerer.answer(*asked):
                    self._counts.answered += 1
                    self._note_back()
            except Exception:  # noqa: BLE001 - one query must not end the others
                if not self._ending:  # else it was given up
                    _LOG.exception("A query of the live session %s failed", self.session_id)
                    self._say_why("internal", "The query failed; the server's log says why.", asked=asked[0])
            with self._changed:
                self._waiting -= 1
                self.heard_s = time.monotonic()
        if not self._ending:  # after video.done
            self.outbox.put(protocol.SessionDone())
            self.end("done")

    # What the client is told

    def _acknowledge(
        self,
        frame: _Frame,
        status: protocol.FrameStatus,
        *,
        time_s: float | None = None,
        alike: float | None = None,
        evicted: int = 0,
    ) -> None:
        announced = frame.announced
        with self._changed:
            setattr(self._counts, status, getattr(self._counts, status) + 1)
        self.outbox.put(
            protocol.FrameAck(
                type="frame.ack" if announced.frame_id is None else "video.frame.ack",
                frame=frame.number,
                status=status,
                time_s=time_s,
                similarity=alike,
                evicted=evicted,
                frame_id=announced.frame_id,
                pts_ms=announced.pts_ms,
                capture_ts_ms=announced.capture_ts_ms,
                accepted=status == "kept",
                buffered_frames=self._in_window,
                reason={"similar": "filtered", "busy": "busy", "evicted": "late"}.get(status),
                server_receive_ts_ms=frame.received_ms,
            )
        )

    def _refuse_frame(self, frame: _Frame, refused: MessageRefusedError) -> None:
        with self._changed:
            self._counts.refused += 1
        self.outbox.put(
            protocol.ErrorEvent(
                code=refused.code,
                message=refused.message,
                frame=frame.number,
                frame_id=frame.announced.frame_id,
                is_fatal=refused.is_fatal,
            )
        )

    def _say_why(
        self, code: protocol.ErrorCode, message: str, *, asked: Asked | None = None, is_fatal: bool = False
    ) -> None:
        self.outbox.put(
            protocol.ErrorEvent(
                code=code,
                message=message,
                query=asked.number if asked else None,
                query_id=asked.query.query_id if asked else None,
                is_fatal=is_fatal,
            )
        )

    def _finish(self) -> None:
        self._asked.put(None)
        self._setup.model.forget(self.session_id)  # an answer in work is given up
        self._answers.join(_END_S)
        assert self._ending
        with self._changed:
            left = [each for each in self._inbox if isinstance(each, _Frame)]
        for frame in left:
            self._acknowledge(frame, "busy")
        if self._record:
            try:
                self._record.close(self._ending, self.stats())
            except ReelabelError as error:
                _LOG.warning("The live session %s was not recorded to its end: %s", self.session_id, error.message)
        self._on_end(self)
        self.outbox.put(protocol.SessionClosed(reason=self._ending))
        self.outbox.close()


def _limit_reached(what: str) -> MessageRefusedError:
    return MessageRefusedError(
        f"The session has sent more than {what}, which is the limit; begin another one.",
        code="limit_reached",
        is_fatal=True,
    )
