"""Which frames of a video a sampler shows: those that it chooses among the ones in the segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import NoFramesError, SamplingRefusedError
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.sampling.spec import EVERY
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import WHOLE, lie_in_windows, select_segment

if TYPE_CHECKING:
    from reelabel.index import Float64s, Int64s, VideoIndex
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment, Windows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """The frames that a sampler shows.

    Attributes:
        places: Their places in `VideoIndex.order`, ascending, with repeats; shape (M,), M >= 1.
        instants_s: The instants they were chosen for, in seconds; shape (M,); None if the sampler targets no instants.
        starts_s: Start of the segment on the clock of the frames' times; None for the whole video.
        is_empty: Whether no frame lies in the segment, so that the last one before it is shown.
    """

    places: Int64s
    instants_s: Float64s | None = None
    starts_s: float | None = None
    is_empty: bool = False

    @property
    def unique(self) -> Int64s:
        """Each place once, ascending."""
        return np.unique(self.places)


def choose(
    index: VideoIndex, sampling: Sampling, segment: Segment = WHOLE, *, every: bool = False, windows: Windows = ()
) -> Chosen:
    """Choose the frames that a sampler shows of a segment, as if the video had been trimmed to it.

    Args:
        index: The frames.
        sampling: The sampler, which is not `auto`, and its options.
        segment: The part of the video.
        every: Choose every keyframe once, whatever the sampler.
        windows: The parts of the segment that a dense sampler samples from; empty for all of it.

    Raises:
        NoFramesError: The video has no frames.
        SamplingRefusedError: The sampler does not support the video, or the frames have no times by which to find the
            segment.
    """
    if not index.order.size:
        raise NoFramesError("No frame of the video can be decoded; the file is probably damaged.")
    if sampling.sampler == "keyframes" or every:
        return _choose_keyframes(index, sampling, segment, every=every)
    return _choose_frames(index, sampling, segment, windows)


def _choose_keyframes(index: VideoIndex, sampling: Sampling, segment: Segment, *, every: bool) -> Chosen:
    candidates = index.keyframe_places
    candidates = candidates if candidates.size else np.arange(len(index.order))
    starts_s, is_empty = None, False
    if not segment.is_whole:
        times_s, start_s = _clock(index)
        found = select_segment(times_s[candidates], segment, first_s=start_s)
        candidates, is_empty = candidates[found.numbers], found.is_empty
        starts_s = start_s + (segment.start_s or 0.0)
    if not every and sampling.num_frames != EVERY:
        candidates = candidates[pick_evenly(len(candidates), sampling.num_frames)]
    return Chosen(places=candidates, starts_s=starts_s, is_empty=is_empty)


def _choose_frames(index: VideoIndex, sampling: Sampling, segment: Segment, windows: Windows) -> Chosen:
    """Choose from the stream properties that OpenCV reports, as vLLM's loaders do."""
    numbers, starts_s, is_empty = np.arange(len(index.order)), None, False
    if not segment.is_whole or windows:
        times_s, start_s = _clock(index)
        found = select_segment(times_s, segment, first_s=start_s)
        numbers, is_empty = found.numbers, found.is_empty
        starts_s = float(times_s[numbers].min())
        if windows:
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
    return Chosen(places=numbers[indices[order]], instants_s=instants_s, starts_s=starts_s, is_empty=is_empty)


def _clock(index: VideoIndex) -> tuple[Float64s, float]:
    """Return when frames are shown, and when the first one of the video is.

    Raises:
        SamplingRefusedError: The frames have no timestamps.
    """
    if index.time_s is None or index.start_s is None:
        raise SamplingRefusedError(
            "The video has no timestamps, so a segment of it cannot be located; remove start_s and end_s."
        )
    return index.time_s, index.start_s
