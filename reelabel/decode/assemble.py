"""Assemble decoded frames and their metadata into `SampledFrames`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from reelabel.decode.render import Renderer, cut_margins, orientation_of
from reelabel.index import NOT_CROPPED
from reelabel.sampled_frames import SampledFrames
from reelabel.sampling.choose import choose
from reelabel.segment import WHOLE, Segment, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from av.video.frame import VideoFrame

    from reelabel.index import Int64s, VideoIndex, VideoInfo
    from reelabel.limits import Limits
    from reelabel.sampled_frames import Orientation
    from reelabel.sampling.choose import Chosen, Wanted
    from reelabel.sampling.options import Sampling
    from reelabel.sources.sparse_file import SparseFile
    from reelabel.sources.video_file import VideoFile


_T = TypeVar("_T")


@dataclass(slots=True)
class DecodeStats:
    """Decode statistics of one request, over all strategies tried.

    Attributes:
        frames: Frames output by decoders.
        is_empty: Whether no frame lies in the segment.
    """

    frames: int = 0
    is_empty: bool = False

    def each(self, frames: Iterable[_T]) -> Iterator[_T]:
        """Yield frames, counting them."""
        for frame in frames:
            self.frames += 1
            yield frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """A request for frames of one video, and the decode statistics so far; see `extract_local`.

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

    @property
    def shows_keyframes(self) -> bool:
        """Whether only keyframes are shown, which decode by themselves."""
        return self.sampling.sampler == "keyframes" or self.every

    def choose(self, index: VideoIndex) -> Chosen:
        """Choose frames; raises as `reelabel.sampling.choose.choose` does."""
        chosen = choose(index, self.sampling, self.segment, every=self.every, windows=self.windows, wanted=self.wanted)
        self.stats.is_empty = chosen.is_empty
        return chosen


class FrameInfo(NamedTuple):
    """One frame.

    Attributes:
        pts: Presentation timestamp in the stream's time base; `NO_PTS` if it has none.
        time_s: When it is shown, in seconds on the clock of the video's first frame; 0 if unknown.
        position: Its place among the frames that are shown.
        is_keyframe: Whether it is a keyframe.
    """

    pts: int
    time_s: float
    position: int
    is_keyframe: bool


def frames_of(index: VideoIndex, places: Int64s) -> list[FrameInfo]:
    """Return the frames at some places of `VideoIndex.order`."""
    rows = index.order[places]
    times_s = np.zeros(len(rows)) if index.time_s is None else index.time_s[places]
    columns = index.pts[rows], times_s, places, index.is_keyframe[rows]
    return [FrameInfo(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def assemble_frames(
    request: ExtractionRequest,
    describe: Callable[[], VideoInfo],
    *,
    index: VideoIndex,
    chosen: Chosen,
    wanted: Sequence[FrameInfo],
    frames: Iterable[tuple[FrameInfo, VideoFrame]],
    method: Literal["index", "seek", "linear"],
    orientation: Orientation | None = None,
) -> SampledFrames:
    """Render frames as they are decoded, and collect their metadata.

    Args:
        request: The request they answer.
        describe: Returns the stream's properties; called after its frames are decoded.
        index: The frames of the video.
        chosen: The chosen ones.
        wanted: Each of these once, in their order.
        frames: The same, decoded, the first one first; the last ones may be missing.
        method: The strategy used.
        orientation: Orientation of the frames; None reads it from their side data.
    """
    rows = {info: row for row, info in enumerate(wanted)}
    count = 0
    for info, frame in frames:
        if not count:
            crop = NOT_CROPPED if request.native else describe().crop
        picture = cut_margins(frame, crop)
        if not count:
            renderer = Renderer.from_frame(
                picture,
                sampling=request.sampling,
                limits=request.limits,
                native=request.native,
                orientation=orientation or orientation_of(frame),
            )
            images = np.empty((len(wanted), *renderer.shape), np.uint8)
            native_width_px, native_height_px = picture.width, picture.height
        renderer.draw(picture, images[rows[info]])
        count = max(count, rows[info] + 1)
        # Damage is concealed with what a released frame's memory held, so none may be held longer for being wanted.
        del frame, picture
    stated = describe()
    shown = wanted[:count]
    time_s = np.array([each.time_s for each in shown], np.float64)
    picks = np.searchsorted(chosen.unique, chosen.places)
    return SampledFrames(
        images=images[:count],
        pts=np.array([each.pts for each in shown], np.int64),
        time_s=time_s,
        frame_index=index.position[chosen.unique][:count],
        is_keyframe=np.array([each.is_keyframe for each in shown], np.bool_),
        picks=picks,
        deviation_s=None if chosen.instants_s is None else time_s[picks] - chosen.instants_s,
        keyframes_in_file=index.keyframes,
        keyframe_ms=index.keyframe_ms,
        first_ms=index.first_ms,
        total_frames=index.total_frames,
        fps=stated.fps,
        duration_s=index.length_s(stated),
        pixel_aspect=stated.pixel_aspect,
        native_width_px=native_width_px,
        native_height_px=native_height_px,
        orientation=renderer.orientation,
        segment=request.segment,
        starts_s=chosen.starts_s,
        first_s=index.start_s,
        method=method,
        reason=renderer.note,
        decode_ms=0.0,
    )
