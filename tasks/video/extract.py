"""Decoding the picked keyframes, exactly.

Two ways. `seek`: list the packets without decoding, then seek to each picked keyframe and decode
until its presentation time appears; every frame is checked. `linear`: decode everything twice, once
to learn which frames are keyframes, once to keep the picks. It is taken for containers whose seeks
or flags are known to mislead, and whenever a check fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av
import av.error
import numpy as np
from av.video.frame import PictureType

from infra.errors import NoFramesError, VideoUnreadableError
from tasks.video.index import FrameIndex, SeekMisledError, index_by_decoding, index_by_packets
from tasks.video.keyframes import Keyframes
from tasks.video.render import Renderer
from tasks.video.sample import pick_evenly
from tasks.video.source import decode_all, open_video

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.domain import Sampling
    from tasks.video.limits import Limits

_MOST_FRAMES_AFTER_SEEK = 32
_UNKNOWN_PTS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is wanted of one video; see `extract_keyframes`."""

    path: Path
    sampling: Sampling
    limits: Limits
    native: bool
    every: bool

    def picks(self, index: FrameIndex) -> list[int]:
        """Choose positions in presentation order, with repeats."""
        if not index.pts:
            raise NoFramesError("No frame of the video can be decoded; is it damaged?")
        if self.every:
            return list(index.candidates)
        chosen = pick_evenly(len(index.candidates), self.sampling.num_frames)
        return [index.candidates[pick] for pick in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shots:
    """Rendered frames by position, and the facts of their stream."""

    index: FrameIndex
    picks: list[int]
    pixels: dict[int, npt.NDArray[np.uint8]]
    rotation_deg: int
    time_base_s: float
    fps: float
    duration_s: float
    native_size_px: tuple[int, int]


def extract_keyframes(
    path: Path,
    *,
    sampling: Sampling,
    limits: Limits,
    native: bool = False,
    every: bool = False,
) -> Keyframes:
    """Decode the keyframes of a video that the model sees.

    Every frame is, byte for byte, the one that a full linear decode shows at its time.

    Args:
        path: The video's file.
        sampling: How many frames, and how large.
        limits: What the video may cost.
        native: Keep frames unscaled and unrotated, as `to_ndarray(format="rgb24")` gives them.
        every: Take every keyframe once instead of `sampling.num_frames` picks.

    Raises:
        VideoMissingError: There is no file.
        VideoEmptyError: The file has no bytes.
        VideoUnreadableError: FFmpeg cannot open it.
        NoVideoStreamError: There is no video stream in it.
        NoFramesError: No frame could be decoded.
        VideoTooLargeError: The file or a frame exceeds the limits.
    """
    started = time.perf_counter()
    request = _Request(path=path, sampling=sampling, limits=limits, native=native, every=every)
    reason = ""
    try:
        shots = _seek(request)
    except SeekMisledError as error:
        reason = str(error)
        shots = _decode_linearly(request)
    return _assemble(shots, reason=reason, decode_ms=(time.perf_counter() - started) * 1e3)


def _seek(request: _Request) -> _Shots:
    if request.every:
        raise SeekMisledError("every keyframe was asked for")
    with open_video(request.path, request.limits) as (container, stream):
        index = index_by_packets(container, stream)
    picks = request.picks(index)
    # Opened anew: demuxing to the end may have met what a decoder starting there would not.
    with open_video(request.path, request.limits) as (container, stream):
        frames = ((position, _frame_at(container, stream, index.pts[position])) for position in dict.fromkeys(picks))
        return _render(request, container, stream, index=index, picks=picks, frames=frames)


def _decode_linearly(request: _Request) -> _Shots:
    with open_video(request.path, request.limits) as (container, stream):
        index = index_by_decoding(container, stream)
    picks = request.picks(index)
    wanted = set(picks)
    with open_video(request.path, request.limits) as (container, stream):
        frames = (
            (position, frame) for position, (frame, _) in enumerate(decode_all(container, stream)) if position in wanted
        )
        return _render(request, container, stream, index=index, picks=picks, frames=frames)


def _frame_at(container: InputContainer, stream: VideoStream, wanted: int | None) -> VideoFrame:
    """Seek to a keyframe and check that it is what was looked for."""
    assert wanted is not None
    try:
        container.seek(wanted, stream=stream, backward=True)
        frame = _landing(container.decode(stream), wanted)
    except MemoryError:
        raise
    except av.error.FFmpegError:
        raise SeekMisledError("a seek ended in an error") from None
    if not frame.key_frame or frame.pict_type != PictureType.I:
        raise SeekMisledError("a packet is flagged as a keyframe, its frame is not")
    if frame.is_corrupt:
        # Damage is patched from earlier frames, which only a linear decode has.
        raise SeekMisledError("a keyframe is damaged")
    return frame


def _landing(frames: Iterator[VideoFrame], wanted: int) -> VideoFrame:
    for count, frame in enumerate(frames):
        if frame.pts == wanted:
            return frame
        if frame.pts is None or frame.pts > wanted or count >= _MOST_FRAMES_AFTER_SEEK:
            raise SeekMisledError("a seek landed elsewhere")
    raise SeekMisledError("a seek reached the end")


def _render(
    request: _Request,
    container: InputContainer,
    stream: VideoStream,
    *,
    index: FrameIndex,
    picks: list[int],
    frames: Iterable[tuple[int, VideoFrame]],
) -> _Shots:
    renderer: Renderer | None = None
    pixels = {}
    for position, frame in frames:
        renderer = renderer or Renderer.for_frames_like(
            frame, sampling=request.sampling, limits=request.limits, native=request.native
        )
        pixels[position] = renderer.render(frame)
    assert renderer is not None
    time_base_s = float(stream.time_base or 0)
    length_s = (stream.duration or 0) * time_base_s or (container.duration or 0) / av.time_base
    return _Shots(
        index=index,
        picks=picks,
        pixels=pixels,
        rotation_deg=renderer.rotation_deg,
        time_base_s=time_base_s,
        fps=float(stream.average_rate or stream.guessed_rate or 0),
        duration_s=length_s,
        native_size_px=(stream.codec_context.width, stream.codec_context.height),
    )


def _assemble(shots: _Shots, *, reason: str, decode_ms: float) -> Keyframes:
    positions = list(shots.pixels)
    row_of = {position: row for row, position in enumerate(positions)}
    pts = [shots.index.pts[position] for position in positions]
    return Keyframes(
        images=_stack(list(shots.pixels.values())),
        pts=np.array([_UNKNOWN_PTS if value is None else value for value in pts], np.int64),
        time_s=np.array([_time_s(shots, position) for position in positions], np.float64),
        frame_index=np.array(positions, np.int64),
        is_keyframe=np.isin(positions, shots.index.keyframes),
        picks=np.array([row_of[position] for position in shots.picks], np.int64),
        keyframes_in_file=len(shots.index.keyframes),
        total_frames=len(shots.index.pts),
        fps=shots.fps,
        duration_s=shots.duration_s,
        native_width_px=shots.native_size_px[0],
        native_height_px=shots.native_size_px[1],
        rotation_deg=shots.rotation_deg,
        method="linear" if reason else "seek",
        reason=reason,
        decode_ms=decode_ms,
    )


def _time_s(shots: _Shots, position: int) -> float:
    pts = shots.index.pts[position]
    if pts is not None:
        return pts * shots.time_base_s
    # A container without times, such as a raw stream, has nothing but its rate.
    return position / shots.fps if shots.fps else 0.0


def _stack(images: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise VideoUnreadableError(f"The video's frames change their size ({sorted(shapes)}); do not ask for native.")
    return np.stack(images)
