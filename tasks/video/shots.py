"""From decoded frames and what is known of them to `Keyframes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from infra.errors import NoFramesError
from tasks.video.keyframes import NO_PTS, Keyframes
from tasks.video.render import Renderer
from tasks.video.sample import pick_evenly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from av.video.frame import VideoFrame

    from tasks.domain import Sampling
    from tasks.video.limits import Limits
    from tasks.video.orientation import Orientation
    from tasks.video.ranges import SparseFile
    from tasks.video.stream import StreamFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of one video; see `extract_keyframes`."""

    source: Path | SparseFile
    sampling: Sampling
    limits: Limits
    native: bool = False
    every: bool = False
    threads: int = 1

    def choose(self, candidates: int) -> list[int]:
        """Choose among the frames that may be picked, by number, ascending and with repeats.

        Raises:
            NoFramesError: There is none.
        """
        if not candidates:
            raise NoFramesError("No frame of the video can be decoded; is it damaged?")
        return list(range(candidates)) if self.every else pick_evenly(candidates, self.sampling.num_frames)


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
    """How many frames a video has; `frames` is None where unknown."""

    keyframes: int
    frames: int | None


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
        total_frames=census.frames,
        fps=stream.fps,
        duration_s=stream.duration_s,
        pixel_aspect=stream.pixel_aspect,
        native_width_px=native_width_px,
        native_height_px=native_height_px,
        orientation=renderer.orientation,
        method=method,
        reason="",
        decode_ms=0.0,
    )


def _time_s(sight: Sight, stream: StreamFacts) -> float:
    if sight.pts is not None:
        return sight.pts * float(stream.time_base)
    # A container without times, such as a raw stream, has nothing but its rate.
    return sight.position / stream.fps if stream.fps else 0.0
