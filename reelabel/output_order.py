"""The order in which a decoder outputs frames, and the times at which they are then shown.

Timestamps do not always give that order: recordings that were joined end to end restart their clock, and some muxers
write decode times. Where timestamps do not show the order, only a linear decode does.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.errors import FallbackRequired
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# H.264 and HEVC reorder at most this many frames (A.3.1 and A.4.2: MaxDpbFrames): that many may be decoded before one
# and presented after it. Other codecs reorder fewer.
MAX_REORDERED = 16
_LATER_THAN_KEYFRAME = 2  # a single later frame is out of place; the clock was not set back
_PENDING = 64  # packets whose frames a decoder may still output


def output_order(
    pts: npt.NDArray[np.int64],
    is_keyframe: npt.NDArray[np.bool_],
    is_shown: npt.NDArray[np.bool_],
    *,
    first_pts: int | None = None,
) -> npt.NDArray[np.int64]:
    """Return the numbers of the shown frames in the order in which a decoder outputs them, in which PTS ascend.

    There is a row for each packet, in decode order. `first_pts` is that of the video's first frame, if these packets
    begin later. Raises FallbackRequired if the packets do not determine the order.
    """
    shown = np.flatnonzero(is_shown)
    order: npt.NDArray[np.int64] = shown[np.argsort(pts[shown], kind="stable")]
    if (np.diff(pts[order]) == 0).any():
        raise FallbackRequired("packets share a PTS")
    # A decoder does not output frames it cannot decode, so positions would be wrong.
    if not order.size or not is_keyframe[0] or pts[order[0]] < (pts[0] if first_pts is None else first_pts):
        raise FallbackRequired("frames precede the first keyframe")
    check_forward(pts[shown], is_keyframe[shown])
    return order


def check_forward(pts: npt.NDArray[np.int64], is_keyframe: npt.NDArray[np.bool_]) -> None:
    """Raise FallbackRequired if the timestamps of frames, in decode order, jump back, as in joined recordings."""
    positions = np.empty(len(pts), np.int64)
    positions[np.argsort(pts, kind="stable")] = np.arange(len(pts))
    latest = np.maximum.accumulate(positions)
    # Before a keyframe, all frames that are decoded earlier are shown.
    if (positions < latest)[is_keyframe].any() or (np.arange(len(pts)) - positions > MAX_REORDERED).any():
        raise FallbackRequired("timestamps jump back")


@dataclass(slots=True)
class ClockReader:
    """Finds where the clock of a video is set back, by its packets in decode order."""

    _clock: int = 0
    _latest: list[int] = field(default_factory=list)  # a heap of the clock's latest times
    _pending: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_PENDING))
    _output: int = 0

    def add(self, pts: int | None, *, is_keyframe: bool) -> None:
        """Read the next packet."""
        if pts is None:
            return
        later = sum(other > pts for other in self._latest)
        if later > MAX_REORDERED or (is_keyframe and later >= _LATER_THAN_KEYFRAME):
            self._clock += 1
            self._latest.clear()
        (heapq.heappush if len(self._latest) <= MAX_REORDERED else heapq.heappushpop)(self._latest, pts)
        self._pending.append((pts, self._clock))

    def clock_of(self, pts: int | None) -> int:
        """Return the number of the clock of the frame that the decoder outputs next; these numbers never fall."""
        for packet in self._pending:
            if packet[0] == pts:
                self._pending.remove(packet)
                self._output = max(self._output, packet[1])
                break
        return self._output


class PlayTimes(NamedTuple):
    """When frames are shown, in seconds on the clock of the first, never falling; None if unknown.

    The note says how they differ from the frames' timestamps; empty if they do not.
    """

    times_s: npt.NDArray[np.float64] | None
    note: str = ""


def play_times(pts: Sequence[int | None], clocks: Sequence[int], *, unit_s: float, fps: float) -> PlayTimes:
    """Return when frames are shown that a decoder outputs in this order.

    Where the clock is set back, times go on by the usual step. Frames whose timestamps contradict their order take
    these in order. Frames without a timestamp lie evenly between others, or follow from the frame rate. `clocks` are
    the numbers of their clocks, never falling; `unit_s` and `fps` are 0 if unknown.
    """
    at = np.flatnonzero([each is not None for each in pts])
    if not at.size or not unit_s:
        return PlayTimes(np.arange(len(pts)) / fps if fps else None)
    given_s = np.array([pts[place] for place in at.tolist()], np.float64) * unit_s
    starts = np.flatnonzero(np.diff(np.asarray(clocks)[at])) + 1
    parts = [np.sort(part) for part in np.split(given_s, starts)]
    steps = np.concatenate(
        [np.diff(part) / np.diff(places) for part, places in zip(parts, np.split(at, starts), strict=True)]
    )
    usual_s = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1 / fps if fps else 0.0
    notes = ["timestamps contradict the order of frames"] if (np.concatenate(parts) != given_s).any() else []
    later_s, set_back = 0.0, 0
    for number, part in enumerate(parts):
        before_s = parts[number - 1][-1] if number else part[0]
        if part[0] + later_s < before_s:
            frames = int(at[starts[number - 1]] - at[starts[number - 1] - 1])
            later_s, set_back = float(before_s + frames * usual_s - part[0]), set_back + 1
        parts[number] = part + later_s
    if set_back:
        notes.append(f"timestamps are set back {pluralize(set_back, 'time')}; later times count on from there")
    known_s = np.maximum.accumulate(np.concatenate(parts))  # a sum with an absurd timestamp is rounded
    return PlayTimes(_filled(at, known_s, len(pts), 1 / fps if fps else usual_s), "; ".join(notes))


def _filled(
    at: npt.NDArray[np.int64], known_s: npt.NDArray[np.float64], count: int, step_s: float
) -> npt.NDArray[np.float64]:
    """Return the times of all frames, by those that are known, and the step before the first and after the last."""
    if len(at) == count:
        return known_s
    numbers = np.arange(count)
    times_s: npt.NDArray[np.float64] = np.interp(numbers, at, known_s)
    times_s += np.minimum(numbers - at[0], 0) * step_s + np.maximum(numbers - at[-1], 0) * step_s
    return times_s
