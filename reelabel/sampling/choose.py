"""Choice of frames: by a sampler, among those in the segment, or by their position or time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from reelabel.errors import NoFramesError, SamplingRefusedError
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.sampling.spec import EVERY, VideoProperties
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import WHOLE, Segment, Windows, lie_in_windows, select_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.index import Float64s, Int64s, VideoIndex
    from reelabel.sampling.options import Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """The frames that a sampler shows, or that are wanted by position or time.

    Attributes:
        indices: Those into `VideoIndex.order`, with repeats; ascending, but for wanted ones; shape (M,), M >= 1.
        instants_s: The instants they were chosen for, in seconds; shape (M,); None if the sampler targets no instants.
        starts_s: Start of the segment on the clock of the frames' times; None for the whole video.
        is_empty: Whether the segment has no frame, so that the last one before it is shown.
    """

    indices: Int64s
    instants_s: Float64s | None = None
    starts_s: float | None = None
    is_empty: bool = False

    @property
    def unique(self) -> Int64s:
        """Each index once, ascending."""
        return np.unique(self.indices)


def choose(
    index: VideoIndex,
    sampling: Sampling,
    segment: Segment = WHOLE,
    *,
    windows: Windows = (),
    wanted: Wanted | None = None,
) -> Chosen:
    """Choose the frames that a sampler shows of a segment, as if the video had been trimmed to it.

    A dense sampler samples from `windows` of the segment, if there are any. `wanted` frames take the place of those
    that a sampler would choose.

    Raises NoFramesError, and SamplingRefusedError if the sampler does not support the video, a wanted frame is missing,
    or frames have no times by which to find these or the segment.
    """
    if not index.order.size:
        raise NoFramesError("No frame of the video can be decoded; the file is probably damaged.")
    if wanted is not None:
        return _choose_wanted(index, wanted, segment)
    if sampling.sampler == "keyframes":
        return _choose_keyframes(index, sampling, segment)
    return _choose_frames(index, sampling, segment, windows)


def _choose_wanted(index: VideoIndex, wanted: Wanted, segment: Segment) -> Chosen:
    if isinstance(wanted, Instants):
        return Chosen(indices=wanted.choose(index))
    within, starts_s, is_empty = _in_segment(index, segment)
    return Chosen(indices=wanted.choose(within), starts_s=starts_s, is_empty=is_empty)


def _choose_keyframes(index: VideoIndex, sampling: Sampling, segment: Segment) -> Chosen:
    candidates = index.keyframe_indices
    candidates = candidates if candidates.size else np.arange(len(index.order))
    starts_s, is_empty = None, False
    if not segment.is_whole:
        times_s, start_s = _clock(index)
        found = select_segment(times_s[candidates], segment, first_s=start_s)
        candidates, is_empty = candidates[found.numbers], found.is_empty
        starts_s = start_s + (segment.start_s or 0.0)
    if sampling.num_frames != EVERY:
        candidates = candidates[pick_evenly(len(candidates), sampling.num_frames)]
    return Chosen(indices=candidates, starts_s=starts_s, is_empty=is_empty)


def _choose_frames(index: VideoIndex, sampling: Sampling, segment: Segment, windows: Windows) -> Chosen:
    """Choose from the stream properties that OpenCV reports, as vLLM's loaders do."""
    numbers, starts_s, is_empty = _in_segment(index, segment)
    if windows:
        times_s, start_s = _clock(index)
        starts_s = float(times_s[numbers].min())
        numbers = numbers[lie_in_windows(times_s[numbers] - start_s, windows)]
        if not numbers.size:
            raise SamplingRefusedError("No frame of the video lies in the wanted windows.")
    info = index.info
    stream = VideoProperties(
        total_frames=len(numbers),
        fps=info.fps,
        duration_s=len(numbers) / info.fps if info.fps else 0.0,
        width_px=info.width_px,
        height_px=info.height_px,
        times_s=None if index.time_s is None else index.time_s[numbers],
    )
    indices, deviations = choose_indices(sampling, stream), deviations_s(sampling, stream)
    order = np.argsort(indices, kind="stable")
    instants_s = None
    if deviations is not None:
        assert stream.times_s is not None
        instants_s = (stream.times_s[indices] - deviations)[order]
    return Chosen(indices=numbers[indices[order]], instants_s=instants_s, starts_s=starts_s, is_empty=is_empty)


def _in_segment(index: VideoIndex, segment: Segment) -> tuple[Int64s, float | None, bool]:
    """Return the indices of the frames in a segment, its start, and whether it is empty (the frame before is used)."""
    if segment.is_whole:
        return np.arange(len(index.order)), None, False
    times_s, start_s = _clock(index)
    found = select_segment(times_s, segment, first_s=start_s)
    return found.numbers, float(times_s[found.numbers].min()), found.is_empty


def _clock(index: VideoIndex) -> tuple[Float64s, float]:
    if index.time_s is None or index.start_s is None:
        raise SamplingRefusedError(
            "The video has no timestamps, so a segment of it cannot be located; remove start_s and end_s."
        )
    return index.time_s, index.start_s


# Tolerance for rounded timestamps, the same as for the ends of segments.
_TOLERANCE_S = 1e-4


@dataclass(frozen=True, slots=True)
class Positions:
    """Frames by their positions in the linear decode, or among its frames in a segment, in any order and with repeats.

    Negative ones count from the end; `clips` leaves out what lies after the last frame, instead of refusing it.
    """

    numbers: Sequence[int]
    clips: bool = False

    def choose(self, within: Int64s) -> Int64s:
        """Return the wanted ones of the frames `within` the segment.

        Raises SamplingRefusedError if one is missing; with `clips`, only if all are.
        """
        frames = len(within)
        inside = [number for number in self.numbers if -frames <= number < frames]
        if not inside or (len(inside) < len(self.numbers) and not self.clips):
            missing = next(number for number in self.numbers if not -frames <= number < frames)
            raise SamplingRefusedError(
                f"There is no frame {missing}: the video has {frames:,}, numbered from 0 to {frames - 1}."
            )
        found: Int64s = within[inside]
        return found


@dataclass(frozen=True, slots=True)
class Instants:
    """The frames that are shown at some seconds since the first frame, at least 0, in any order and with repeats."""

    seconds: Sequence[float]

    def choose(self, index: VideoIndex) -> Int64s:
        """Return the wanted indices in `VideoIndex.order`; SamplingRefusedError without timestamps."""
        if index.time_s is None or index.start_s is None:
            raise SamplingRefusedError("The video has no timestamps; ask for frames by their positions.")
        since_s = np.array(self.seconds, np.float64) + index.start_s
        latest = np.searchsorted(index.time_s, since_s + _TOLERANCE_S, side="right") - 1
        return latest.clip(0, len(index.time_s) - 1)


Wanted: TypeAlias = Positions | Instants
