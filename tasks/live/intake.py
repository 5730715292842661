"""How the frames of a session are taken: decoded, compared with the last kept one, kept or dropped, acknowledged."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from reelabel.errors import TransientError
from reelabel.sampling.similar import mean_colours, similarity
from tasks.live import metrics
from tasks.live.messages import ErrorEvent, FrameAck, ProtocolError
from tasks.live.setup import window_full

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.arrivals import Frame
    from tasks.live.kept import KeptFrames
    from tasks.live.messages import FrameStatus, SessionConfig
    from tasks.live.outbox import Outbox
    from tasks.live.record.recording import Record
    from tasks.live.setup import LiveSetup

_REASONS: dict[FrameStatus, str] = {"similar": "filtered", "evicted": "late"}  # as published


class Intake:
    """Takes the frames of one session.

    Attributes:
        counts: How many frames were acknowledged with each status, and how many refused.
        pixels: How many were decoded.
        threshold: Similarity above which a frame is dropped; None drops none.
    """

    def __init__(
        self,
        config: SessionConfig,
        setup: LiveSetup,
        kept: KeptFrames,
        outbox: Outbox,
        record: Record | None,
        *,
        on_limit: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            config: What the client asked for.
            setup: With what decodes, and the limits.
            kept: Where kept frames go.
            outbox: Where acknowledgements go.
            record: Where kept frames are recorded.
            on_limit: Called when a limit is reached and the client has been told.
        """
        self.counts: Counter[FrameStatus | str] = Counter()
        self.pixels = 0
        self.threshold = config.frame_filter_threshold if config.enable_frame_filter else None
        self._reader, self._settings = setup.reader, setup.settings
        self._kept, self._outbox, self._record, self._on_limit = kept, outbox, record, on_limit
        self._cells: npt.NDArray[np.float64] | None = None  # of the last kept frame
        self._lock = threading.Lock()

    def take(self, frame: Frame) -> bool:
        """Take a frame, and answer it; return whether there is more for the model to read."""
        time_s = self._kept.time_of(frame)
        if time_s < (self._kept.last_s or 0.0):
            self._acknowledge(frame, "evicted", time_s=time_s)
            return False
        self._kept.clock = time_s, frame.arrived_s
        try:
            image = self._decode(frame)
        except ProtocolError as refused:
            self.refuse(frame, refused)
            if refused.is_fatal:
                self._on_limit()
            return False
        cells = mean_colours(image)
        alike = None if self._cells is None else similarity(cells, self._cells)
        if alike is not None and self.threshold is not None and alike > self.threshold and not self._kept.needs_frame:
            self._acknowledge(frame, "similar", time_s=time_s, alike=alike)
            return False
        self._cells = cells
        return self._keep(frame, image, time_s=time_s, alike=alike)

    def refuse(self, frame: Frame, refused: ProtocolError) -> None:
        """Answer a frame that is refused."""
        with self._lock:
            self.counts["refused"] += 1
        metrics.frame_taken("refused")
        self._outbox.put(ErrorEvent.of(refused, frame=frame.number, frame_id=frame.announced.frame_id))

    def _decode(self, frame: Frame) -> npt.NDArray[np.uint8]:
        try:
            picture = self._reader.read(frame.data)
        except TransientError as error:
            raise ProtocolError(error.message, code="unavailable") from None
        self.pixels += picture.decoded_px
        return picture.image

    def _keep(self, frame: Frame, image: npt.NDArray[np.uint8], *, time_s: float, alike: float | None) -> bool:
        number = self._kept.count
        has_more, evicted = self._kept.add(frame, image, time_s=time_s)
        if self._record:
            self._record.keep(number=number, time_s=time_s, image=image)
        is_full = self._kept.held > self._settings.max_window_frames
        self._acknowledge(frame, "kept", time_s=time_s, alike=alike, evicted=evicted)
        if not is_full:
            return has_more
        self._outbox.put(ErrorEvent.of(window_full(self._settings)))
        self._on_limit()
        return False

    def _acknowledge(
        self,
        frame: Frame,
        status: FrameStatus,
        *,
        time_s: float | None = None,
        alike: float | None = None,
        evicted: int = 0,
    ) -> None:
        announced = frame.announced
        with self._lock:
            self.counts[status] += 1
        metrics.frame_taken(status)
        self._outbox.put(
            FrameAck(
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
                buffered_frames=self._kept.in_window,
                reason=_REASONS.get(status),
                server_receive_ts_ms=frame.received_ms,
            )
        )
