"""Assemble decoded frames and their metadata into `SampledFrames`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from reelabel.containers.cropping import Crop
from reelabel.containers.stream_properties import seconds_to_ms
from reelabel.decode.render import Renderer, cut_margins, orientation_of
from reelabel.errors import NoFramesError, SamplingRefusedError
from reelabel.sampled_frames import NO_PTS, SampledFrames
from reelabel.sampling.spec import EVERY
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import WHOLE, Segment, Windows, select_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    from av.video.frame import VideoFrame

    from reelabel.containers.stream_properties import StreamProperties
    from reelabel.limits import Limits
    from reelabel.sampled_frames import Orientation
    from reelabel.sampling.options import Sampling
    from reelabel.sources.sparse_file import SparseFile
    from reelabel.sources.video_file import VideoFile
    from reelabel.wanted import Wanted


_T = TypeVar("_T")


@dataclass(slots=True)
class DecodeStats:
    """Decode statistics of one request, over all strategies tried.

    Attributes:
        frames: Frames output by decoders.
        starts_s: Start of the segment on the clock of the frames' times; None for the whole video.
        first_s: When the video's first frame is shown, on that clock; None if unknown.
        is_empty: Whether none of the candidate frames lies in the segment.
    """

    frames: int = 0
    starts_s: float | None = None
    first_s: float | None = None
    is_empty: bool = False

    def each(self, frames: Iterable[_T]) -> Iterator[_T]:
        """Yield frames, counting them."""
        for frame in frames:
            self.frames += 1
            yield frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """What to extract from one video, and the decode statistics so far; see `extract_keyframes`.

    Attributes:
        roughly: Leave out the loop filter where frames are decoded out of GOPs: faster, and unsuited for frames that a
            model sees.
        wanted: Frames that are wanted in place of those that the sampler chooses.
        fast_only: Refuse rather than decode the video from its beginning, or demux all of it for one of its pieces.
    """

    source: VideoFile | SparseFile
    sampling: Sampling
    limits: Limits
    native: bool = False
    every: bool = False
    threads: int = 1
    segment: Segment = WHOLE
    windows: Windows = ()
    roughly: bool = False
    fast_only: bool = False
    wanted: Wanted | None = None
    stats: DecodeStats = field(default_factory=DecodeStats)

    def choose(
        self, candidates: int, times_s: npt.NDArray[np.float64] | None, *, first_s: float | None = None
    ) -> list[int]:
        """Pick among candidate frames, within the segment.

        Args:
            candidates: Number of candidates.
            times_s: When they are shown, in seconds; None if unknown.
            first_s: When the video's first frame is shown; None if that is the first candidate.

        Returns:
            Numbers of candidates, ascending, with repeats.

        Raises:
            NoFramesError: There are no candidates.
            SamplingRefusedError: A segment was requested, but the frames have no timestamps.
        """
        if not candidates:
            raise NoFramesError("No frame of the video can be decoded; the file is probably damaged.")
        self.stats.first_s = first_s
        numbers = self._candidates(candidates, times_s, first_s)
        if self.every or self.sampling.num_frames == EVERY:
            return numbers
        return [numbers[pick] for pick in pick_evenly(len(numbers), self.sampling.num_frames)]

    def _candidates(self, candidates: int, times_s: npt.NDArray[np.float64] | None, first_s: float | None) -> list[int]:
        if self.segment.is_whole:
            return list(range(candidates))
        if times_s is None:
            raise SamplingRefusedError(
                "The video has no timestamps, so a segment of it cannot be located; remove start_s and end_s."
            )
        first_s = float(times_s[0]) if first_s is None else first_s
        found = select_segment(times_s, self.segment, first_s=first_s)
        self.stats.starts_s = first_s + (self.segment.start_s or 0.0)
        self.stats.is_empty = found.is_empty
        numbers: list[int] = found.numbers.tolist()
        return numbers


class FrameInfo(NamedTuple):
    """Metadata of one frame.

    Attributes:
        pts: Presentation timestamp in the stream's time base; None if it has none.
        time_s: When it is shown, in seconds on the clock of the video's first frame; None if unknown.
        position: Index in the linear decode; -1 if unknown.
        is_keyframe: Whether it is a keyframe.
    """

    pts: int | None
    time_s: float | None
    position: int
    is_keyframe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSummary:
    """What is known of a video's frames as a whole.

    Attributes:
        keyframes: Number of keyframes.
        frames: Number of frames; None if unknown.
        keyframe_s: When each keyframe is shown, in seconds; shape (keyframes,), never falling; None if unknown.
        first_s: When the first frame is shown, or slightly earlier; None if unknown.
        last_s: When the last frame is shown; None if unknown.
        is_retimed: Whether frames are shown at other times than their timestamps say, so that what the file states of
            its length is of these.
    """

    keyframes: int
    frames: int | None
    keyframe_s: npt.NDArray[np.float64] | None
    first_s: float | None = None
    last_s: float | None = None
    is_retimed: bool = False

    def duration_s(self, stream: StreamProperties) -> float:
        """Return the duration that the video states, else what its frames fill; 0.0 if unknown."""
        return (0.0 if self.is_retimed else stream.duration_s) or self._filled_s(stream.fps)

    def _filled_s(self, fps: float) -> float:
        frames, first_s, last_s = self.frames or 0, self.first_s, self.last_s
        if first_s is None or last_s is None:
            return frames / fps if fps and first_s is None and last_s is None else 0.0
        return max(0.0, (last_s - first_s) * frames / max(1, frames - 1))


def assemble_frames(
    request: ExtractionRequest,
    describe: Callable[[], StreamProperties],
    *,
    chosen: list[int],
    frames: Iterable[tuple[FrameInfo, VideoFrame]],
    summary: IndexSummary,
    method: Literal["index", "seek", "linear"],
    orientation: Orientation | None = None,
    in_order: Sequence[FrameInfo] = (),
) -> SampledFrames:
    """Render frames as they are decoded, and collect their metadata.

    Args:
        request: The request they answer.
        describe: Returns the stream's properties; called after its frames are decoded.
        chosen: Numbers of the chosen frames, ascending, with repeats.
        frames: Each chosen frame once, in the same order unless `in_order` is given.
        summary: What is known of the video's frames as a whole.
        method: The strategy used.
        orientation: Orientation of the frames; None reads it from their side data.
        in_order: Each chosen frame once, in the same order, if only the first of `frames` is in its place.
    """
    row_of = {number: row for row, number in enumerate(dict.fromkeys(chosen))}
    infos: list[FrameInfo] = []
    rows = {info: row for row, info in enumerate(in_order)}
    for info, frame in frames:
        if not infos:
            crop = Crop() if request.native else describe().crop
        picture = cut_margins(frame, crop)
        if not infos:
            renderer = Renderer.from_frame(
                picture,
                sampling=request.sampling,
                limits=request.limits,
                native=request.native,
                orientation=orientation or orientation_of(frame),
            )
            images = np.empty((len(row_of), *renderer.shape), np.uint8)
            native_width_px, native_height_px = picture.width, picture.height
        renderer.draw(picture, images[rows.get(info, len(infos))])
        infos.append(info)
        # Damage is concealed with what a released frame's memory held, so none may be held longer for being wanted.
        del frame, picture
    infos = list(in_order) or infos
    stream = describe()
    return SampledFrames(
        images=images[: len(infos)],
        pts=np.array([NO_PTS if info.pts is None else info.pts for info in infos], np.int64),
        time_s=np.array([info.time_s or 0.0 for info in infos], np.float64),
        frame_index=np.array([info.position for info in infos], np.int64),
        is_keyframe=np.array([info.is_keyframe for info in infos], np.bool_),
        picks=np.array([row_of[number] for number in chosen], np.int64),
        keyframes_in_file=summary.keyframes,
        keyframe_ms=None if summary.keyframe_s is None else seconds_to_ms(summary.keyframe_s),
        first_ms=None if summary.first_s is None else int(seconds_to_ms(np.array([summary.first_s]))[0]),
        total_frames=summary.frames,
        fps=stream.fps,
        duration_s=summary.duration_s(stream),
        pixel_aspect=stream.pixel_aspect,
        native_width_px=native_width_px,
        native_height_px=native_height_px,
        orientation=renderer.orientation,
        segment=request.segment,
        starts_s=request.stats.starts_s,
        first_s=summary.first_s if request.stats.first_s is None else request.stats.first_s,
        method=method,
        reason=renderer.note,
        decode_ms=0.0,
    )
