"""Whether reported frames are those of the linear decode."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.linear import digest_pixels

if TYPE_CHECKING:
    from benchmarks.linear import LinearDecode, LinearFrame
    from tasks.video.keyframes import Keyframes

_MOST_FAULTS = 5


def disagreements(got: Keyframes, linear: LinearDecode, *, num_frames: int | None) -> list[str]:
    """Say where native keyframes differ from the linear decode of the same file.

    A frame with a known index is held against the frame at that index; one without, against those
    of its time, of which one must have its pixels.

    Args:
        got: Frames extracted with `native=True`.
        linear: Every frame of the same bytes.
        num_frames: How many picks were asked for; None: every keyframe.

    Returns:
        One line for each difference, the first few; empty where all is true.
    """
    faults = [fault for row in range(len(got.images)) for fault in _row_faults(got, row, linear)]
    faults += _count_faults(got, linear)
    faults += _completeness_faults(got, linear) if num_frames is None else _pick_faults(got, num_frames)
    return faults[:_MOST_FAULTS]


def _row_faults(got: Keyframes, row: int, linear: LinearDecode) -> list[str]:
    index, pts = int(got.frame_index[row]), int(got.pts[row])
    where = f"row {row} (frame {index}, pts {pts})"
    if index >= len(linear.frames):
        return [f"{where}: there are {len(linear.frames)} frames"]
    positions = [index] if index >= 0 else [at for at, frame in enumerate(linear.frames) if frame.pts == pts]
    digest = digest_pixels(got.images[row])
    same = [position for position in positions if linear.frames[position].digest == digest]
    if not same:
        return [f"{where}: its pixels are not those of the linear decode's frames {positions}"]
    return [f"{where}: {fault}" for fault in _fact_faults(got, row, linear, same)]


def _fact_faults(got: Keyframes, row: int, linear: LinearDecode, positions: list[int]) -> list[str]:
    frame: LinearFrame = linear.frames[positions[0]]
    faults = []
    if frame.pts is not None and int(got.pts[row]) != frame.pts:
        faults.append(f"the linear decode's pts is {frame.pts}")
    if frame.pts is not None and not np.isclose(got.time_s[row], frame.pts * linear.time_base_s):
        faults.append(f"its time is {got.time_s[row]} s, not {frame.pts * linear.time_base_s} s")
    keyframes = set(linear.keyframes)
    if not any(bool(got.is_keyframe[row]) == (position in keyframes) for position in positions):
        faults.append(f"its keyframe flag is {bool(got.is_keyframe[row])}")
    if not any(position in set(linear.candidates) for position in positions):
        faults.append("it is no keyframe, and the file has some")
    return faults


def _count_faults(got: Keyframes, linear: LinearDecode) -> list[str]:
    faults = []
    if got.keyframes_in_file != len(linear.keyframes):
        faults.append(f"{got.keyframes_in_file} keyframes are counted, there are {len(linear.keyframes)}")
    if got.total_frames not in {None, len(linear.frames)}:
        faults.append(f"{got.total_frames} frames are counted, there are {len(linear.frames)}")
    return faults


def _completeness_faults(got: Keyframes, linear: LinearDecode) -> list[str]:
    expected = [linear.frames[position].digest for position in linear.candidates]
    if [digest_pixels(image) for image in got.images] != expected:
        return [f"{len(got.images)} frames given, not the {len(expected)} keyframes in their order"]
    return []


def _pick_faults(got: Keyframes, num_frames: int) -> list[str]:
    picks = got.picks.tolist()
    counts = Counter(picks)
    faults = []
    if len(picks) != num_frames:
        faults.append(f"{len(picks)} picks, not {num_frames}")
    if picks != sorted(picks) or set(picks) != set(range(len(got.images))):
        faults.append(f"picks {picks} are not all rows in order")
    if max(counts.values()) - min(counts.values()) > 1:
        faults.append(f"picks {picks} repeat out of balance")
    return faults
