"""The frames and the audio that a session keeps, and which of them a question sees."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from reelabel_engine.live_items import AUDIO_HZ, FRAMES_PER_PAIR, SPAN_S, AudioSpan, FramePair, Item
from tasks.live.media import AUDIO_FORMAT, audio_refused
from tasks.live.model import Prefix
from tasks.live.window import TOLERANCE_S, AudioSpans, FramePairs, Window, WindowRule, pair_up, spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.inbox import Audio, Frame
    from tasks.live.messages import SessionConfig
    from tasks.live.pending import PendingQuery

_MS = 1000
_MAX_AHEAD_S = 60.0  # of the samples, before the time at which they arrive
_LATE_S = 10.0  # after frames that the model has seen
_MAX_FRAMES = 50  # that a query sees by default, as published


def window_rule(config: SessionConfig) -> WindowRule:
    if config.window_s is not None:
        return WindowRule(sink=config.sink, size=config.window_s, unit="seconds")
    if config.window is not None:
        return WindowRule(sink=config.sink, size=config.window)
    most = config.max_frames or _MAX_FRAMES
    sink = min(config.sink, most // 4)
    return WindowRule(sink=sink, size=max(2, (most - sink) // 2))


def _most_after_sink(config: SessionConfig) -> int | None:
    """Return how many of the window's frames a query sees at most; pairs may exceed a small `max_frames`, or a sink."""
    sink = window_rule(config).sink
    limits = config.num_frames, config.max_frames and config.max_frames - sink - sink % FRAMES_PER_PAIR
    return min(filter(None, limits), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What a query sees. Times are those of the clock of the frames."""

    prefix: Prefix | None  # None without a frame
    asked_s: float
    sink_frames: int
    first_frame_s: float | None  # of the first frame after the sink; None if there is none
    last_frame_s: float
    last_frame: tuple[int, str | None]  # number of the last frame, and the client's id of it
    evicted: int  # kept frames that have left the window so far
    last_audio_s: float | None = None  # end of the audio; None if there is none
    # Numbers of its kept frames; twice if a frame is shown twice before others.
    frames: tuple[int, ...] = ()


class FrameWindow:
    """The kept frames and the audio of one session; times are in seconds since its first kept frame or audio.

    Two seconds of audio follow the pairs that begin within them, as in the videos that models with audio were trained
    on; late audio is added when it arrives.
    """

    def __init__(self, session_id: str, config: SessionConfig) -> None:
        self.last_s: float | None = None  # time of the last kept frame
        self.count = 0  # of kept frames
        # Time of the last frame in order, kept or similar, and its arrival on the monotonic clock.
        self.clock: tuple[float, float] | None = None
        # Frames of the window by their times: their numbers among the kept and in the session, and their clients' ids.
        self._kept: dict[float, tuple[int, int, str | None]] = {}
        self._session_id, self._system_prompt = session_id, config.system_prompt
        self._most = _most_after_sink(config)
        self._window, self._pairs, self._spans = Window(window_rule(config)), FramePairs(), AudioSpans()
        # By their times: queries that wait share those that they see, instead of a copy of the pixels each.
        self._shown_pairs: WeakValueDictionary[tuple[float, float], FramePair] = WeakValueDictionary()
        self._has_audio = False
        self._audio_end_s: float | None = None  # None before the first audio
        self._last_own_s: float | None = None  # of the last kept frame, before it was rounded
        # The beginning on the monotonic clock, and on the client's, known from the first message with a time.
        self._began_s: float | None = None
        self._own_began_s: float | None = None

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
        """Number of frames and complete audio spans."""
        return self.in_window + sum(not item.frames for item in self._window.current)

    @property
    def needs_frame(self) -> bool:
        """Whether to keep the next frame even if it is similar, because audio soon pushes out the last one."""
        return self._window.needs_frame

    @property
    def goal(self) -> list[Prefix]:
        """The prefixes to prefill: the current one, and the one that replaces it at the next eviction.

        Without an unpaired frame; and without prefixes of which a query sees only some frames, which change with
        every frame.
        """
        sink = len(self._window.sink)
        return [
            self._prefix(items)
            for items in (self._window.current, self._window.next)
            if items and (self._most is None or _frames(items[sink:]) <= self._most)
        ]

    def time_of(self, frame: Frame) -> float:
        """Return the time of a frame, in whole milliseconds.

        A frame less than a millisecond after the last kept one gets the next millisecond, because times identify kept
        frames.
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
        if own_s is None or self._own_began_s is None:
            return 0.0 if self._began_s is None else arrived_s - self._began_s
        return own_s - self._own_began_s

    def _begin(self, own_s: float | None, arrived_s: float) -> None:
        if self._began_s is None:
            self._began_s = arrived_s
        if own_s is not None and self._own_began_s is None:
            self._own_began_s = own_s - (arrived_s - self._began_s)

    def add(self, frame: Frame, image: npt.NDArray[np.uint8], *, time_s: float) -> tuple[bool, int]:
        """Add a frame.

        Args:
            frame: The frame.
            image: Its pixels, of shape (H, W, 3), which must not change.
            time_s: Its time, from `time_of`.

        Returns:
            Whether there is more to prefill, and how many frames leave the window.
        """
        self._begin(frame.announced.own_time_s, frame.arrived_s)
        self.last_s, self._last_own_s = time_s, self._own_time_of(frame)
        self._kept[time_s] = (self.count, frame.number, frame.announced.frame_id)
        self.count += 1
        complete = self._pairs.add(image, time_s)
        evicted = sum(map(self._show, complete))
        self.clock = time_s, frame.arrived_s
        return bool(complete), evicted

    def _show(self, pair: FramePair) -> int:
        items: tuple[Item, ...] = (*self._spans.cut(pair.times_s[0]), pair)
        gone = [each for item in items for each in self._window.add(item)]
        for gone_s in {time_s for each in gone if each.frames for time_s in each.times_s}:
            del self._kept[gone_s]
        return sum(each.frames for each in gone)

    def add_audio(self, audio: Audio) -> bool:
        """Add audio; return whether there is more to prefill.

        Raises:
            ProtocolError: It overlaps with other audio, or is too early or too late.
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
        """Return the time of the first sample; a chunk without a time ends when it arrives."""
        start_s, end_s = self._time_of(audio.time_s, audio.arrived_s - audio.seconds), self._audio_end_s
        if audio.time_s is None:
            start_s = max(0.0, start_s) if end_s is None else max(start_s, end_s)
            arrived_s = audio.seconds if self._began_s is None else audio.arrived_s - self._began_s
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

    def visible(self, query: PendingQuery) -> Visible:
        """Return what a query that has just arrived sees."""
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
        time_s, arrived_s = self.clock or (0.0, query.arrived_s)
        return Visible(
            prefix=self._prefix(items) if ends else None,
            asked_s=time_s + max(0.0, query.arrived_s - arrived_s),
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
        """Return what a query sees after the sink: all, or `num_frames` frames, evenly spread and paired anew."""
        if self._most is None or _frames(recent) <= self._most:
            return recent
        frames = [frame for item in recent if isinstance(item, FramePair) for frame in item.distinct]
        paired = pair_up(frames[index] for index in spread(len(frames), self._most))
        pairs = [self._shown_pairs.setdefault(pair.times_s, pair) for pair in paired]
        return _interleave(pairs, [item for item in recent if isinstance(item, AudioSpan)])

    def _prefix(self, items: tuple[Item, ...]) -> Prefix:
        return Prefix(
            session=self._session_id, items=items, system_prompt=self._system_prompt, has_audio=self._has_audio
        )


def _frames(items: Iterable[Item]) -> int:
    return sum(item.frames for item in items)


def _interleave(pairs: Iterable[FramePair], spans: Iterable[AudioSpan]) -> tuple[Item, ...]:
    """Put each audio span after the pairs that begin within its two seconds."""
    items: list[Item] = []
    waiting = deque(spans)
    for pair in pairs:
        while waiting and waiting[0].time_s + SPAN_S <= pair.times_s[0]:
            items.append(waiting.popleft())
        items.append(pair)
    return (*items, *waiting)
