"""From decoded frames and what is known of them to `Keyframes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from infra.errors import NoFramesError, SamplingRefusedError
from tasks.domain.segment import WHOLE, Segment
from tasks.video.cut import cut
from tasks.video.keyframes import NO_PTS, Keyframes
from tasks.video.render import Renderer
from tasks.video.sample import pick_evenly
from tasks.video.stream import as_ms, one_as_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from fractions import Fraction
    from pathlib import Path

    import numpy.typing as npt
    from av.video.frame import VideoFrame

    from tasks.domain import Sampling
    from tasks.video.limits import Limits
    from tasks.video.orientation import Orientation
    from tasks.video.ranges import SparseFile
    from tasks.video.stream import StreamFacts


_T = TypeVar("_T")


@dataclass(slots=True)
class Tally:
    """What a video took and told so far, on every way that was tried.

    Attributes:
        frames: Frames that came out of a decoder.
        starts_s: When the segment starts, by the clock of the frames' times; None for the whole video.
        is_outside: Whether no frame that could be chosen lies in the segment.
    """

    frames: int = 0
    starts_s: float | None = None
    is_outside: bool = False

    def each(self, frames: Iterable[_T]) -> Iterator[_T]:
        """Count frames as they come."""
        for frame in frames:
            self.frames += 1
            yield frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of one video, and what that took so far; see `extract_keyframes`."""

    source: Path | SparseFile
    sampling: Sampling
    limits: Limits
    native: bool = False
    every: bool = False
    threads: int = 1
    segment: Segment = WHOLE
    tally: Tally = field(default_factory=Tally)

    def choose(
        self,
        pts: Sequence[int | None] | npt.NDArray[np.int64],
        time_base: Fraction | None,
        *,
        first_pts: int | None = None,
    ) -> list[int]:
        """Choose among the frames that may be picked, by number, ascending and with repeats.

        Args:
            pts: When they are shown, in the stream's time base.
            time_base: Seconds of one unit of it.
            first_pts: When the video's first frame is shown; None is the first of `pts`.

        Raises:
            NoFramesError: There is none.
            SamplingRefusedError: A segment was asked for, and frames have no times.
        """
        if not len(pts):
            raise NoFramesError("No frame of the video can be decoded; is it damaged?")
        numbers = self._numbers(pts, time_base, pts[0] if first_pts is None else first_pts)
        return (
            numbers if self.every else [numbers[pick] for pick in pick_evenly(len(numbers), self.sampling.num_frames)]
        )

    def _numbers(
        self, pts: Sequence[int | None] | npt.NDArray[np.int64], time_base: Fraction | None, first_pts: int | None
    ) -> list[int]:
        if self.segment.is_whole:
            return list(range(len(pts)))
        if not time_base or first_pts is None or any(each is None for each in pts):
            raise SamplingRefusedError("The video tells no times by which a segment could be found; leave it out.")
        first_s = first_pts * float(time_base)
        found = cut(np.asarray(pts, np.float64) * float(time_base), self.segment, first_s=first_s)
        self.tally.starts_s = first_s + (self.segment.start_s or 0.0)
        self.tally.is_outside = found.is_outside
        numbers: list[int] = found.numbers.tolist()
        return numbers


class Sight(NamedTuple):
    """What is known of one frame besides its pixels.

    Attributes:
        pts: Presentation time in the stream's time base; None where there is none.
        position: Index in the linear decode; -1 where unknown.
        is_keyframe: Whether it is a keyframe.
    """

    pts: int | None
    position: int
    is_keyframe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """How many frames a video has.

    Attributes:
        keyframes: Keyframes.
        frames: All frames; None where unknown.
        keyframe_pts: When each keyframe is shown, in the stream's time base; shape (keyframes,).
        first_pts: When the first frame is shown, or a little before; None where unknown.
    """

    keyframes: int
    frames: int | None
    keyframe_pts: Sequence[int | None] | npt.NDArray[np.int64]
    first_pts: int | None = None


def shoot(
    request: Request,
    describe: Callable[[], StreamFacts],
    *,
    chosen: list[int],
    frames: Iterable[tuple[Sight, VideoFrame]],
    census: Census,
    method: Literal["index", "seek", "linear"],
    orientation: Orientation | None = None,
) -> Keyframes:
    """Render frames as they come, and gather what is known of them.

    Args:
        request: What was asked for.
        describe: Tells of the stream, once its frames were decoded.
        chosen: Numbers of the chosen frames, ascending and with repeats.
        frames: Each chosen frame once, in the same order.
        census: What the video holds.
        method: The way that was taken.
        orientation: How pictures are to be turned, where the frames themselves do not say.
    """
    row_of = {number: row for row, number in enumerate(dict.fromkeys(chosen))}
    sights: list[Sight] = []
    for sight, frame in frames:
        if not sights:
            renderer = Renderer.for_frames_like(
                frame,
                sampling=request.sampling,
                limits=request.limits,
                native=request.native,
                orientation=orientation,
            )
            images = np.empty((len(row_of), *renderer.shape), np.uint8)
            native_width_px, native_height_px = frame.width, frame.height
        renderer.draw(frame, images[len(sights)])
        sights.append(sight)
    stream = describe()
    return Keyframes(
        images=images[: len(sights)],
        pts=np.array([NO_PTS if sight.pts is None else sight.pts for sight in sights], np.int64),
        time_s=np.array([_time_s(sight, stream) for sight in sights], np.float64),
        frame_index=np.array([sight.position for sight in sights], np.int64),
        is_keyframe=np.array([sight.is_keyframe for sight in sights], np.bool_),
        picks=np.array([row_of[number] for number in chosen], np.int64),
        keyframes_in_file=census.keyframes,
        keyframe_ms=as_ms(census.keyframe_pts, stream.time_base),
        first_ms=one_as_ms(census.first_pts, stream.time_base),
        total_frames=census.frames,
        fps=stream.fps,
        duration_s=stream.duration_s,
        pixel_aspect=stream.pixel_aspect,
        native_width_px=native_width_px,
        native_height_px=native_height_px,
        orientation=renderer.orientation,
        segment=request.segment,
        starts_s=request.tally.starts_s,
        method=method,
        reason="",
        decode_ms=0.0,
    )


def _time_s(sight: Sight, stream: StreamFacts) -> float:
    if sight.pts is not None:
        return sight.pts * float(stream.time_base)
    # A container without times, such as a raw stream, has nothing but its rate.
    return sight.position / stream.fps if stream.fps else 0.0
