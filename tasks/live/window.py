"""Which frames and audio a prompt has: the first ones, which stay, and the last ones, which are evicted in halves.

A model that has prefilled items 1 to n prefills item n + 1 at the cost of that item; without item 1, it must prefill
all of them again. So the window grows from W to 2 W. From W on, a second prefix grows beside it, of the first items and
of those after the window's first W, and replaces it at 2 W. Every arrival costs one item or two, never a whole window.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from reelabel_engine.live_items import AUDIO_HZ, SPAN_S, AudioSpan, FramePair, Item

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt


_MIN_SAMPLES = AUDIO_HZ // 10  # the encoder makes no token of less than 30 ms
TOLERANCE_S = 0.5  # by which clocks may differ within a span


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How much of a stream a prompt has: at least `size`, and less than twice as much; None never evicts.

    A span of audio counts as a frame.
    """

    sink: int = 0  # first frames, which are never evicted
    size: float | None = None
    unit: Literal["frames", "seconds"] = "frames"


class Window:
    """The items of the prompts of one session."""

    def __init__(self, rule: WindowRule) -> None:
        self.rule = rule
        self.evicted = 0  # different frames, so far
        self._sink: list[Item] = []
        self._sink_frames = 0
        self._recent: list[Item] = []
        self._starts: list[float] = []  # of each recent item, in the rule's unit
        self._ends: list[float] = []
        self._frames_end = 0.0  # of the last item that has frames
        self._next: int | None = None  # the first recent item of the next prefix

    @property
    def sink(self) -> tuple[Item, ...]:
        return tuple(self._sink)

    @property
    def current(self) -> tuple[Item, ...]:
        return (*self._sink, *self._recent)

    @property
    def next(self) -> tuple[Item, ...]:
        """The items of the prefix that replaces the current one at the next eviction; empty while there are few."""
        return () if self._next is None else (*self._sink, *self._recent[self._next :])

    @property
    def needs_frame(self) -> bool:
        """Whether so much audio follows the last frame that it is evicted soon."""
        size = self.rule.size
        return size is not None and bool(self._ends) and self._ends[-1] - self._frames_end > size / 2

    def add(self, item: Item) -> tuple[Item, ...]:
        """Add the next item; return those that it evicts."""
        if not self._recent and self._sink_frames < self.rule.sink:
            self._sink.append(item)
            self._sink_frames += item.frames or 1
            self._frames_end = item.times_s[1] if self.rule.unit == "seconds" else 0.0
            return ()
        start, end = self._span(item)
        if item.frames:
            self._frames_end = end
        self._starts.append(start)
        self._ends.append(end)
        self._recent.append(item)
        if self.rule.size is None:
            return ()
        gone: list[Item] = []
        while self._length() >= 2 * self.rule.size and (first := self._next or self._half(self.rule.size)):
            gone += self._recent[:first]
            del self._recent[:first], self._starts[:first], self._ends[:first]
            self._next = None
        if self._next is None and self._length() > self.rule.size:
            self._next = self._half(self.rule.size) or None
        self.evicted += sum(each.frames for each in gone)
        return tuple(gone)

    def _span(self, item: Item) -> tuple[float, float]:
        last = self._ends[-1] if self._ends else 0.0
        if self.rule.unit == "seconds":
            return item.times_s[0], max(item.times_s[1], last)
        return last, last + (item.frames or 1)

    def _length(self) -> float:
        return self._ends[-1] - self._starts[0]

    def _half(self, size: float) -> int:
        """Return the index of the first item after the window's first half; 0 if nothing can be evicted."""
        return bisect_right(self._ends, self._starts[0] + size) or bisect_right(self._ends, self._ends[-1] - size)


def spread(count: int, most: int) -> list[int]:
    """Return the indices of at most `most` of `count` frames, evenly spread; the last one is always among them."""
    if count <= most:
        return list(range(count))
    if most == 1:
        return [count - 1]
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


class AudioSpans:
    """Cuts audio into spans as it arrives."""

    def __init__(self) -> None:
        self.end_s = 0.0  # of the audio so far, in seconds since the session began
        self._begin_s = 0.0  # of the span that is still open
        self._open: list[npt.NDArray[np.int16]] = []
        self._samples = 0

    @property
    def open(self) -> AudioSpan | None:
        if not self._samples:
            return None
        samples = np.concatenate(self._open)
        return AudioSpan(samples=np.pad(samples, (0, max(0, _MIN_SAMPLES - len(samples)))), time_s=self._begin_s)

    def add(self, samples: npt.NDArray[np.int16], time_s: float) -> tuple[AudioSpan, ...]:
        """Add samples of shape (N,), which must not change; return the spans that are now complete.

        Audio that begins within half a second of the end of the previous audio continues it; later audio begins a new
        span.
        """
        complete = self.cut() if abs(time_s - self.end_s) > TOLERANCE_S else ()
        if not self._samples and (complete or time_s > self.end_s):
            self.end_s = time_s
        while len(samples):
            if not self._samples:
                self._begin_s = self.end_s
            head, samples = np.split(samples, [round(SPAN_S * AUDIO_HZ) - self._samples])
            self._open.append(head)
            self._samples += len(head)
            self.end_s = self._begin_s + self._samples / AUDIO_HZ
            if self._samples == round(SPAN_S * AUDIO_HZ):
                complete += self.cut()
        return complete

    def cut(self, until_s: float = float("inf")) -> tuple[AudioSpan, ...]:
        """End the open span if its two seconds are over at a time; return it."""
        span = self.open
        if span is None or self._begin_s + SPAN_S > until_s:
            return ()
        self._open, self._samples = [], 0
        return (span,)


class FramePairs:
    """Pairs frames as they arrive; a frame of another size begins a new pair."""

    def __init__(self) -> None:
        # The last frame while it is unpaired, shown twice, as models pad a video.
        self.alone: FramePair | None = None

    def add(self, image: npt.NDArray[np.uint8], time_s: float) -> tuple[FramePair, ...]:
        """Add a frame of shape (H, W, 3), which must not change; return the pair that is now complete, if any.

        A frame whose successor has another size is paired with itself.
        """
        alone = self.alone
        if alone is not None and alone.images.shape[1:] == image.shape:
            pair = FramePair(images=np.stack([alone.images[0], image]), times_s=(alone.times_s[0], time_s))
            self.alone = None
            return (pair,)
        self.alone = FramePair(images=np.stack([image, image]), times_s=(time_s, time_s), frames=1)
        return () if alone is None else (alone,)


def pair_up(frames: Iterable[tuple[npt.NDArray[np.uint8], float]]) -> tuple[FramePair, ...]:
    """Pair frames, each given with its time; the last one may be paired with itself."""
    pairs = FramePairs()
    items = [item for image, time_s in frames for item in pairs.add(image, time_s)]
    return (*items, *((pairs.alone,) if pairs.alone else ()))
