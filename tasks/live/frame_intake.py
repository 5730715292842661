"""The frames and the audio of a session: which are kept, how frames are acknowledged, and their prefill."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel.sampling.similar import mean_colours, similarity
from reelabel_engine.errors import PromptTooLongError
from tasks.live import events, metrics
from tasks.live.frame_window import FrameWindow
from tasks.live.threads import in_thread

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.live.event_log import EngineStatus, EventLog
    from tasks.live.events import FrameStatus
    from tasks.live.inbox import Audio, Frame
    from tasks.live.media import Picture
    from tasks.live.messages import ProtocolError, SessionConfig
    from tasks.live.record.recorder import SessionRecord
    from tasks.live.setup import LiveSetup

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.5  # before frames are prefilled again after a loss of the engine
_REASONS: dict[FrameStatus, str] = {"similar": "filtered", "evicted": "late"}  # as published


class FrameIntake:
    """The frames and the audio of one session, added in order of arrival."""

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        setup: LiveSetup,
        *,
        events: EventLog,
        engine: EngineStatus,
        record: SessionRecord | None,
    ) -> None:
        self.window = FrameWindow(session_id, config)
        self.threshold = config.frame_filter_threshold if config.enable_frame_filter else None
        self.counts: Counter[str] = Counter()  # of frames, by status
        self.pixels = 0  # decoded
        self._session_id, self._setup = session_id, setup
        self._events, self._engine, self._record = events, engine, record
        self._cells: npt.NDArray[np.float64] | None = None  # of the last kept frame
        self._has_more = asyncio.Event()  # set while there may be something to prefill
        self._is_too_long = False

    @property
    def exceeds_limit(self) -> bool:
        """Whether a query would see more frames and spans of audio than `live.max_window_frames` allows."""
        return self.window.held > self._setup.settings.max_window_frames

    async def add(self, frame: Frame) -> None:
        """Decode a frame, keep or drop it, and acknowledge it.

        Raises:
            ProtocolError: It is no picture, is truncated, or is too large.
            TransientError: Decoding processes keep being killed.
        """
        picture, cells = await in_thread(self._decode, frame)
        self.pixels += picture.decoded_px
        time_s = self.window.time_of(frame)
        if time_s < (self.window.last_s or 0.0):
            self._acknowledge(frame, "evicted", time_s=time_s)
            return
        alike = None if self._cells is None else similarity(cells, self._cells)
        is_similar = alike is not None and self.threshold is not None and alike > self.threshold
        if is_similar and not self.window.needs_frame:
            self.window.clock = time_s, frame.arrived_s
            self._acknowledge(frame, "similar", time_s=time_s, alike=alike)
            return
        self._cells = cells
        number = self.window.count
        has_more, evicted = self.window.add(frame, picture.image, time_s=time_s)
        if self._record:
            self._record.keep(number=number, time_s=time_s, image=picture.image)
        self._acknowledge(frame, "kept", time_s=time_s, alike=alike, evicted=evicted)
        self._start_prefill(has_more=has_more)

    def add_audio(self, audio: Audio) -> None:
        """Add audio; raise a ProtocolError if it overlaps with other audio, or is too early or too late."""
        self._start_prefill(has_more=self.window.add_audio(audio))

    def refuse(self, frame: Frame, error: ProtocolError) -> None:
        self._count("refused")
        self._events.send(events.ErrorEvent.of(error, frame=frame.number, frame_id=frame.announced.frame_id))

    async def prefill(self) -> None:
        """Prefill the window's prefix, and then the one that replaces it, whenever they grow; never returns."""
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            began_s = time.monotonic()
            try:
                while goal := self.window.goal:
                    if await in_thread(self._setup.model.prefill, goal) is None:
                        break
                    self._engine.back()
                    metrics.PREFILL.record(time.monotonic() - began_s)
                    began_s = time.monotonic()
            except EngineLostError:
                self._engine.lost()
                await asyncio.sleep(_PAUSE_S)
                self._has_more.set()
            except PromptTooLongError as error:
                if not self._is_too_long:  # the next frames will not fit, either
                    self._is_too_long = True
                    text = f"{error.message} Configure a smaller window."
                    self._events.send(events.ErrorEvent(code="prompt_too_long", message=text))
            except Exception:  # noqa: BLE001 - the frames are kept all the same
                _LOG.exception("The frames of the live session %s could not be prefilled", self._session_id)

    def _start_prefill(self, *, has_more: bool) -> None:
        if has_more and not self.exceeds_limit:
            self._has_more.set()

    def _decode(self, frame: Frame) -> tuple[Picture, npt.NDArray[np.float64]]:
        picture = self._setup.reader.read(frame.data)
        return picture, mean_colours(picture.image)

    def _acknowledge(
        self, frame: Frame, status: FrameStatus, *, time_s: float, alike: float | None = None, evicted: int = 0
    ) -> None:
        announced = frame.announced
        self._count(status)
        self._events.send(
            events.FrameAck(
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
                buffered_frames=self.window.in_window,
                reason=_REASONS.get(status),
                server_receive_ts_ms=frame.received_ms,
            )
        )

    def _count(self, status: FrameStatus | str) -> None:
        self.counts[status] += 1
        metrics.FRAMES.add(1, {"status": status})
