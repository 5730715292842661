"""The frames and the audio that a session keeps, and which of them a question sees."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel_engine.live_items import AUDIO_HZ, FRAMES_PER_PAIR, SPAN_S, AudioSpan, FramePair, Item
from tasks.live.media import AUDIO_FORMAT, audio_refused
from tasks.live.model import Prefix
from tasks.live.setup import window_rule
from tasks.live.window import TOLERANCE_S, AudioSpans, FramePairs, Window, WindowRule, pair_up, spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.inbox import Audio, Frame, PendingQuery
    from tasks.live.messages import SessionConfig

_MS = 1000
_MAX_AHEAD_S = 60.0  # of the samples, before the time at which they arrive
_LATE_S = 10.0  # after frames that the model has seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What a query sees."""

    prefix: Prefix | None  # its frames; None if there is none, or no longer
    asked_s: float  # when it was asked, on the clock of the frames
    sink_frames: int  # frames of the sink
    first_frame_s: float | None  # time of the first frame after those; None if there is no other
    last_frame_s: float  # time of the last frame that it sees
    last_frame: tuple[int, str | None]  # its number, and its client's id of it
    evicted: int  # kept frames that have left the window
    last_audio_s: float | None = None  # when the audio in its prompt ends; None if there is none
    # Numbers of the kept frames that it sees; twice where one is shown twice before others.
    frames: tuple[int, ...] = ()


class FrameWindow:
    """The kept frames of one session that questions still see, and its audio; times are seconds since it began.

    It begins with its first kept frame or audio. Two seconds of audio follow the pairs that begin within them, as in
    the videos that models with audio were trained on; what comes later than that is shown when it comes.
    """

    def __init__(self, session_id: str, config: SessionConfig) -> None:
        self.last_s: float | None = None  # of the last frame
        self.count = 0  # of frames that were kept so far
        # Of the last frame that came in order: its time, and when it arrived, by the monotonic clock.
        self.clock: tuple[float, float] | None = None
        # Frames that questions may still see, by their times: the number among the kept, the client's number and id.
        self._kept: dict[float, tuple[int, int, str | None]] = {}
        self._session_id, self._system_prompt = session_id, config.system_prompt
        self._most = config.num_frames  # of the window, in a question
        self._window, self._pairs, self._spans = Window(window_rule(config)), FramePairs(), AudioSpans()
        self._has_audio = False
        self._audio_end_s: float | None = None  # None before the first audio
        self._last_own_s: float | None = None  # by the client's clock, which may be that of others as well
        self._origin: tuple[float, float] | None = None  # by the client's clock, and by that of arrivals

    @property
    def rule(self) -> WindowRule:
        return self._window.rule

    @property
    def evicted(self) -> int:
        return self._window.evicted

    @property
    def in_window(self) -> int:
        alone = self._pairs.alone
        return _frames(self._window.current) + (alone.frames if alone else 0)

    @property
    def held(self) -> int:
        """How many frames and complete spans of audio are held."""
        return self.in_window + sum(not item.frames for item in self._window.current)

    @property
    def needs_frame(self) -> bool:
        """Whether the next frame is to be kept even if it is similar: the last one soon leaves the window."""
        return self._window.needs_frame

    @property
    def goal(self) -> list[Prefix]:
        """What the model should have read by now, but for a frame without a partner, and at the next eviction.

        Not what a question sees only some frames of: which these are changes with each frame.
        """
        return [prefix for prefix in map(self._readable, (self._window.current, self._window.next)) if prefix]

    def time_of(self, frame: Frame) -> float:
        """Return the time of a frame that has arrived, in whole milliseconds.

        Of one that has the time of the last kept one, or less than a millisecond more, it is the next millisecond: by
        their times, kept frames are told apart.
        """
        own_s = self._own_time_of(frame)
        time_ms = round(own_s * _MS)
        if self.last_s is not None and self._last_own_s is not None:
            last_ms = round(self.last_s * _MS)
            time_ms = min(time_ms, last_ms - 1) if own_s < self._last_own_s else max(time_ms, last_ms + 1)
        return time_ms / _MS

    def _own_time_of(self, frame: Frame) -> float:
        return self._time_of(frame.announced.own_time_s, frame.arrived_s)

    def _time_of(self, own_s: float | None, arrived_s: float) -> float:
        if self._origin is None:
            return 0.0
        return arrived_s - self._origin[1] if own_s is None else own_s - self._origin[0]

    def _begin(self, own_s: float | None, arrived_s: float) -> None:
        self._origin = self._origin or (arrived_s if own_s is None else own_s, arrived_s)

    def add(self, frame: Frame, image: npt.NDArray[np.uint8], *, time_s: float) -> tuple[bool, int]:
        """Keep a frame and its pixels, of shape (H, W, 3), which must not change; `time_s` is that of `time_of`.

        Returns:
            Whether there is more for the model to read, and how many frames leave the window.
        """
        self._begin(frame.announced.own_time_s, frame.arrived_s)
        self.last_s, self._last_own_s = time_s, self._own_time_of(frame)
        self._kept[time_s] = (self.count, frame.number, frame.announced.frame_id)
        self.count += 1
        alone = self._pairs.alone
        complete: tuple[FramePair, ...] = ()
        try:
            complete = self._pairs.add(image, time_s)
            evicted = sum(map(self._show, complete))
        except Exception:
            if not any(pair in self._window.current for pair in complete):
                self._pairs.alone = alone  # the frame before is shown all the same
            raise
        return bool(complete), evicted

    def _show(self, pair: FramePair) -> int:
        items: tuple[Item, ...] = (*self._spans.cut(pair.times_s[0]), pair)
        gone = [each for item in items for each in self._window.add(item)]
        for gone_s in {time_s for each in gone if each.frames for time_s in each.times_s}:
            del self._kept[gone_s]
        return sum(each.frames for each in gone)

    def add_audio(self, audio: Audio) -> bool:
        """Keep audio that has arrived; return whether there is more for the model to read.

        Raises:
            ProtocolError: It overlaps with other audio, or comes too early or too late.
        """
        start_s = self._start_of(audio)
        samples = audio.samples[max(0, round(-start_s * AUDIO_HZ)) :]  # what was before the first frame
        if not len(samples):
            return False
        self._audio_end_s = start_s + audio.seconds
        self._begin(audio.time_s, audio.arrived_s - audio.seconds)
        self._has_audio = True
        complete = self._spans.add(samples, max(0.0, start_s))
        for span in complete:
            self._window.add(span)
        return bool(complete)

    def _start_of(self, audio: Audio) -> float:
        """Return when audio begins: a chunk without a time ends when it arrives."""
        start_s, end_s = self._time_of(audio.time_s, audio.arrived_s - audio.seconds), self._audio_end_s
        if audio.time_s is None:
            start_s = max(0.0, start_s) if end_s is None else max(start_s, end_s)
            arrived_s = audio.seconds if self._origin is None else audio.arrived_s - self._origin[1]
            if start_s + audio.seconds - arrived_s > _MAX_AHEAD_S:
                raise audio_refused(
                    f"There is more audio than time: it is more than {_MAX_AHEAD_S:g} seconds ahead of its arrival; "
                    f"send {AUDIO_FORMAT} as it is recorded, or say time_s."
                )
        elif end_s is not None and start_s < end_s - TOLERANCE_S:
            raise audio_refused(
                f"The audio begins at {start_s:.1f} seconds, before the end of the last at {end_s:.1f}; send it in "
                f"order, as {AUDIO_FORMAT}."
            )
        elif self.last_s is not None and start_s + audio.seconds < self.last_s - _LATE_S:
            raise audio_refused(
                f"The audio of {start_s:.1f} seconds is too late, since frames up to {self.last_s:.1f} seconds were "
                "taken; send audio and frames side by side."
            )
        return start_s

    def visible(self, asked: PendingQuery) -> Visible:
        sink = self._window.sink
        recent = self._shown(self._items[len(sink) :])
        items = (*sink, *recent)
        pairs = [item for item in items if item.frames]
        ends = [pair.times_s[1] for pair in pairs]
        shown = [time_s for pair in pairs for time_s in pair.times_s]
        if pairs and pairs[-1].frames < FRAMES_PER_PAIR:
            shown.pop()  # models pad a video in the same way
        kept = [self._kept[time_s] for time_s in shown]
        after_sink = [item.times_s[0] for item in recent if item.frames]
        if not after_sink and not self._window.evicted:
            after_sink = [item.times_s[0] for item in sink if item.frames][-1:]
        time_s, arrived_s = self.clock or (0.0, asked.arrived_s)
        return Visible(
            prefix=self._prefix(items) if ends else None,
            asked_s=time_s + max(0.0, asked.arrived_s - arrived_s),
            sink_frames=_frames(sink),
            first_frame_s=after_sink[0] if after_sink else None,
            last_frame_s=ends[-1] if ends else 0.0,
            last_frame=kept[-1][1:] if kept else (0, None),
            evicted=self._window.evicted,
            last_audio_s=max((item.times_s[1] for item in items if not item.frames), default=None),
            frames=tuple(number for number, *_ in kept),
        )

    @property
    def _items(self) -> tuple[Item, ...]:
        alone, span = self._pairs.alone, self._spans.open
        return (*self._window.current, *_interleave([alone] if alone else (), [span] if span else ()))

    def _shown(self, recent: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return what a question sees after the sink: all, or so many frames, evenly spread and paired anew."""
        if self._most is None or _frames(recent) <= self._most:
            return recent
        frames = [frame for item in recent if isinstance(item, FramePair) for frame in item.distinct]
        pairs = pair_up(frames[index] for index in spread(len(frames), self._most))
        return _interleave(pairs, [item for item in recent if isinstance(item, AudioSpan)])

    def _readable(self, items: tuple[Item, ...]) -> Prefix | None:
        recent = items[len(self._window.sink) :]
        return self._prefix(items) if self._most is None or _frames(recent) <= self._most else None

    def _prefix(self, items: tuple[Item, ...]) -> Prefix | None:
        if not items:
            return None
        return Prefix(
            session=self._session_id, items=items, system_prompt=self._system_prompt, has_audio=self._has_audio
        )


def _frames(items: Iterable[Item]) -> int:
    return sum(item.frames for item in items)


def _interleave(pairs: Iterable[FramePair], spans: Iterable[AudioSpan]) -> tuple[Item, ...]:
    """Put each span after the pairs that begin within its two seconds."""
    items: list[Item] = []
    waiting = deque(spans)
    for pair in pairs:
        while waiting and waiting[0].time_s + SPAN_S <= pair.times_s[0]:
            items.append(waiting.popleft())
        items.append(pair)
    return (*items, *waiting)
