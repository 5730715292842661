"""From decoded frames and what is known of them to `Keyframes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import av
import numpy as np

from infra.errors import NoFramesError, VideoUnreadableError
from tasks.video.keyframes import Keyframes
from tasks.video.render import Renderer
from tasks.video.sample import pick_evenly

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.domain import Sampling
    from tasks.video.limits import Limits
    from tasks.video.ranges import SparseFile

UNKNOWN_POSITION = -1
_UNKNOWN_PTS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of one video; see `extract_keyframes`."""

    source: Path | SparseFile
    sampling: Sampling
    limits: Limits
    native: bool = False
    every: bool = False

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
    opened: tuple[InputContainer, VideoStream],
    *,
    chosen: list[int],
    frames: Iterable[tuple[Sight, VideoFrame]],
    census: Census,
    method: Literal["index", "seek", "linear"],
) -> Keyframes:
    """Render frames as they come, and gather what is known of them.

    Args:
        request: What was asked for.
        opened: The file, and the stream that the frames are of.
        chosen: Numbers of the chosen frames, ascending and with repeats.
        frames: Each chosen frame once, in the same order.
        census: What the video holds.
        method: The way that was taken.
    """
    container, stream = opened
    sights, images, renderer = [], [], None
    for sight, frame in frames:
        renderer = renderer or Renderer.for_frames_like(
            frame, sampling=request.sampling, limits=request.limits, native=request.native
        )
        sights.append(sight)
        images.append(renderer.render(frame))
    assert renderer is not None
    time_base_s, fps = float(stream.time_base or 0), float(stream.average_rate or stream.guessed_rate or 0)
    row_of = {number: row for row, number in enumerate(dict.fromkeys(chosen))}
    return Keyframes(
        images=_stack(images),
        pts=np.array([_UNKNOWN_PTS if sight.pts is None else sight.pts for sight in sights], np.int64),
        time_s=np.array([_time_s(sight, time_base_s, fps) for sight in sights], np.float64),
        frame_index=np.array([sight.position for sight in sights], np.int64),
        is_keyframe=np.array([sight.is_keyframe for sight in sights], np.bool_),
        picks=np.array([row_of[number] for number in chosen], np.int64),
        keyframes_in_file=census.keyframes,
        total_frames=census.frames,
        fps=fps,
        duration_s=(stream.duration or 0) * time_base_s or (container.duration or 0) / av.time_base,
        native_width_px=stream.codec_context.width,
        native_height_px=stream.codec_context.height,
        rotation_deg=renderer.rotation_deg,
        method=method,
        reason="",
        decode_ms=0.0,
    )


def _time_s(sight: Sight, time_base_s: float, fps: float) -> float:
    if sight.pts is not None:
        return sight.pts * time_base_s
    # A container without times, such as a raw stream, has nothing but its rate.
    return sight.position / fps if fps else 0.0


def _stack(images: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise VideoUnreadableError(f"The video's frames change their size ({sorted(shapes)}); do not ask for native.")
    return np.stack(images)
