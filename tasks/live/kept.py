"""The frames that a session keeps, and which of them a question sees."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.live.items import Pairs, pair_up
from tasks.live.model import Prefix
from tasks.live.setup import window_rule
from tasks.live.window import Window, spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.arrivals import Asked, Frame
    from tasks.live.items import LiveItem
    from tasks.live.protocol import SessionConfig
    from tasks.live.window import WindowRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a query sees.

    Attributes:
        query: Number of the query.
        prefix: Its frames; None if there is none yet.
        asked_s: When it was asked, in seconds since the first frame.
        arrived_s: The same by the monotonic clock.
        sink_frames: Frames of the sink.
        first_frame_s: Time of the first frame after those.
        last_frame_s: Time of the last frame.
        last_frame: Its number, and its client's id of it.
        evicted: Kept frames that have left the window.
    """

    query: int
    prefix: Prefix | None
    asked_s: float
    arrived_s: float
    sink_frames: int
    first_frame_s: float
    last_frame_s: float
    last_frame: tuple[int, str | None]
    evicted: int

    @property
    def waited_ms(self) -> float:
        """Milliseconds since it was asked."""
        return (time.monotonic() - self.arrived_s) * 1e3


class KeptFrames:
    """The kept frames of one session that questions still see; times are seconds since the first one.

    Attributes:
        last_s: Time of the last one; None before the first.
    """

    def __init__(self, session_id: str, config: SessionConfig) -> None:
        """Start with none."""
        self.last_s: float | None = None
        self._session_id, self._system_prompt = session_id, config.system_prompt
        self._most = config.num_frames  # of the window, in a question
        self._window, self._pairs = Window(window_rule(config)), Pairs()
        self._last: tuple[int, str | None] = (0, None)  # its number, and its client's id of it
        self._origin: tuple[float, float] | None = None  # the first one's own time, and its arrival

    @property
    def rule(self) -> WindowRule:
        """How many a question sees."""
        return self._window.rule

    @property
    def evicted(self) -> int:
        """How many have left the window."""
        return self._window.evicted

    @property
    def in_window(self) -> int:
        """How many there are now, with the sink."""
        return _frames(self._items)

    @property
    def current(self) -> Prefix | None:
        """What the model should have read by now, but for a frame without a partner; None if there is nothing.

        Neither is there if a question sees only some of the frames: which these are changes with each frame.
        """
        return self._readable(self._window.current)

    @property
    def following(self) -> Prefix | None:
        """What takes the place of `current` at the next eviction; None if none is near."""
        return self._readable(self._window.following)

    def time_of(self, frame: Frame) -> float:
        """Return the time of a frame that has arrived."""
        if self._origin is None:
            return 0.0
        own_s = frame.announced.own_time_s
        return frame.arrived_s - self._origin[1] if own_s is None else own_s - self._origin[0]

    def add(self, frame: Frame, image: npt.NDArray[np.uint8], *, time_s: float) -> tuple[bool, int]:
        """Keep a frame.

        Args:
            frame: As it arrived.
            image: RGB pixels as the model sees them; shape (H, W, 3), uint8; kept, so it must not change.
            time_s: Its time, as of `time_of`; not before the last one's.

        Returns:
            Whether there is more for the model to read, and how many frames leave the window.
        """
        if self._origin is None:
            own_s = frame.announced.own_time_s
            self._origin = (frame.arrived_s if own_s is None else own_s, frame.arrived_s)
        self.last_s, self._last = time_s, (frame.number, frame.announced.frame_id)
        complete = self._pairs.add(image, time_s)
        evicted = sum(gone.frames for item in complete for gone in self._window.add(item))
        return bool(complete), evicted

    def see(self, asked: Asked) -> Seen:
        """Note what a query sees."""
        sink = self._window.sink
        recent = self._shown(self._items[len(sink) :])
        after_sink = recent or sink[-1:]
        origin_s = self._origin[1] if self._origin else asked.arrived_s
        return Seen(
            query=asked.number,
            prefix=self._prefix((*sink, *recent)),
            asked_s=asked.arrived_s - origin_s,
            arrived_s=asked.arrived_s,
            sink_frames=_frames(sink),
            first_frame_s=after_sink[0].times_s[0] if after_sink else 0.0,
            last_frame_s=self.last_s or 0.0,
            last_frame=self._last,
            evicted=self._window.evicted,
        )

    @property
    def _items(self) -> tuple[LiveItem, ...]:
        alone = self._pairs.alone
        return (*self._window.current, *((alone,) if alone else ()))

    def _shown(self, recent: tuple[LiveItem, ...]) -> tuple[LiveItem, ...]:
        """Return what a question sees of the frames after the sink: all, or so many, evenly spread and paired anew."""
        if self._most is None or _frames(recent) <= self._most:
            return recent
        frames = [frame for item in recent for frame in item.distinct]
        return pair_up(frames[place] for place in spread(len(frames), self._most))

    def _readable(self, items: tuple[LiveItem, ...]) -> Prefix | None:
        recent = items[len(self._window.sink) :]
        return self._prefix(items) if self._most is None or _frames(recent) <= self._most else None

    def _prefix(self, items: tuple[LiveItem, ...]) -> Prefix | None:
        return Prefix(session=self._session_id, items=items, system_prompt=self._system_prompt) if items else None


def _frames(items: Iterable[LiveItem]) -> int:
    return sum(item.frames for item in items)
