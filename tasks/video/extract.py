"""Decoding the picked keyframes, exactly.

Two ways. `seek`: list the packets without decoding, then seek to each picked keyframe and decode
until its presentation time appears; every frame is checked (`frame.pts`, `frame.key_frame`).
`linear`: decode everything twice, once to learn which frames are keyframes, once to keep the picks.
It is taken for containers whose seeks or flags are known to mislead, and whenever a check fails.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import av
import av.error
import numpy as np

from infra.errors import NoFramesError, NoVideoStreamError, VideoEmptyError, VideoTooLargeError, VideoUnreadableError
from tasks.video.keyframes import Keyframes
from tasks.video.sample import pick_evenly
from tasks.video.size import fit_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from tasks.domain import Sampling
    from tasks.video.limits import Limits

# MPEG-PS/TS land on the next keyframe, AVI's times run backwards in real files, FLV and Ogg have no index.
_SEEKABLE_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
_INTRA_ONLY_CODECS = frozenset(
    {"mjpeg", "png", "prores", "dnxhd", "ffv1", "huffyuv", "rawvideo", "jpeg2000", "dvvideo"}
)
_MOST_FRAMES_AFTER_SEEK = 32


class _SeekMisledError(Exception):
    """A check of the seeking way failed; the linear way takes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """What is known of the stream's frames: times in presentation order, and which are keyframes."""

    pts: Sequence[int | None]
    keyframes: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shot:
    """One converted frame."""

    pixels: npt.NDArray[np.uint8]
    pts: int
    index: int
    is_keyframe: bool


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
        VideoEmptyError: The file has no bytes.
        VideoUnreadableError: FFmpeg cannot open it.
        NoVideoStreamError: There is no video stream in it.
        NoFramesError: No frame could be decoded.
        VideoTooLargeError: The file or a frame exceeds the limits.
    """
    started = time.perf_counter()
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        raise VideoEmptyError("The video has no bytes; upload it again.")
    if size_bytes > limits.max_video_bytes:
        raise VideoTooLargeError(f"The video has {size_bytes:,} bytes; extract.max_video_bytes allows fewer.")
    method: Literal["seek", "linear"] = "seek"
    reason = "every keyframe was asked for" if every else ""
    with _open(path, limits) as (container, stream):
        index, distrust = _demux(container, stream)
    reason = reason or distrust
    shots: list[_Shot] = []
    with _open(path, limits) as (container, stream):
        painter = _Painter(stream, sampling, limits, native=native)
        if not reason:
            try:
                shots = _seek_shots(container, stream, index, picks=_picks(index, sampling), painter=painter)
            except (_SeekMisledError, av.error.FFmpegError) as error:
                reason = str(error) or type(error).__name__
    if reason:
        method = "linear"
        with _open(path, limits) as (container, stream):
            index = _decode_index(container, stream, fallback=index)
        picks = list(range(len(index.keyframes))) if every else _picks(index, sampling)
        with _open(path, limits) as (container, stream):
            painter = _Painter(stream, sampling, limits, native=native)
            shots = _linear_shots(container, stream, index, picks=picks, painter=painter)
    else:
        picks = _picks(index, sampling)
    return _assemble(
        stream_facts=painter,
        index=index,
        picks=picks,
        shots=shots,
        method=method,
        reason=reason,
        decode_ms=(time.perf_counter() - started) * 1e3,
    )


@contextmanager
def _open(path: Path, limits: Limits) -> Iterator[tuple[InputContainer, VideoStream]]:
    try:
        container = av.open(str(path), metadata_errors="replace")
    except (av.error.FFmpegError, ValueError) as error:
        raise VideoUnreadableError(f"FFmpeg cannot open the video: {error.strerror or error}.") from None  # type: ignore[union-attr]
    with container:
        if not container.streams.video:
            raise NoVideoStreamError("The file holds no video stream; is it audio only?")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise VideoUnreadableError("This build of FFmpeg has no decoder for the video's codec.")
        _check_pixels(stream.codec_context.width, stream.codec_context.height, limits)
        # One thread: processes run side by side, and threads would delay the first frame after a seek.
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        yield container, stream


def _check_pixels(width_px: int, height_px: int, limits: Limits) -> None:
    if width_px * height_px > limits.max_frame_pixels:
        raise VideoTooLargeError(
            f"Frames of {width_px}x{height_px} exceed extract.max_frame_pixels ({limits.max_frame_pixels:,}).",
        )


def _picks(index: _Index, sampling: Sampling) -> list[int]:
    if not index.keyframes:
        raise NoFramesError("No frame of the video can be decoded; is it damaged?")
    return pick_evenly(len(index.keyframes), sampling.num_frames)


def _demux(container: InputContainer, stream: VideoStream) -> tuple[_Index, str]:
    """List the frames without decoding; the second value says why that cannot be trusted, or is empty."""
    packets: list[tuple[int | None, bool]] = []
    broken = ""
    try:
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                packets.append((packet.pts, packet.is_keyframe))  # noqa: PERF401 - keeps what came before an error
    except av.error.FFmpegError:
        broken = "the demuxer stopped at an error"
    known = sorted(pts for pts, _ in packets if pts is not None)
    where = {pts: position for position, pts in enumerate(known)}
    keyframes = sorted(where[pts] for pts, is_flagged in packets if is_flagged and pts is not None)
    index = _Index(pts=known, keyframes=keyframes)
    return index, broken or _distrust(container, stream, packets, known)


def _distrust(
    container: InputContainer,
    stream: VideoStream,
    packets: list[tuple[int | None, bool]],
    known: list[int],
) -> str:
    flagged = sum(flag for _, flag in packets)
    if container.format.name not in _SEEKABLE_FORMATS:
        return f"seeks in {container.format.name} are not exact"
    if len(known) != len(packets):
        return "packets without a presentation time"
    if len(set(known)) != len(known):
        return "packets that share a presentation time"
    if flagged == 0:
        return "no packet is flagged as a keyframe"
    if flagged == len(packets) > 1 and stream.codec_context.name not in _INTRA_ONLY_CODECS:
        return "every packet is flagged as a keyframe"
    return ""


def _seek_shots(
    container: InputContainer,
    stream: VideoStream,
    index: _Index,
    *,
    picks: list[int],
    painter: _Painter,
) -> list[_Shot]:
    shots = []
    for pick in dict.fromkeys(picks):
        position = index.keyframes[pick]
        wanted = index.pts[position]
        assert wanted is not None
        container.seek(wanted, stream=stream, backward=True)
        shots.append(painter.shoot(_frame_at(container, stream, wanted), position))
    return shots


def _frame_at(container: InputContainer, stream: VideoStream, wanted: int) -> VideoFrame:
    for count, frame in enumerate(container.decode(stream)):
        if frame.pts == wanted:
            if not frame.key_frame:
                raise _SeekMisledError("a packet is flagged as a keyframe, its frame is not")
            return frame
        if frame.pts is None or frame.pts > wanted or count >= _MOST_FRAMES_AFTER_SEEK:
            raise _SeekMisledError("a seek landed elsewhere")
    raise _SeekMisledError("a seek reached the end")


def _decode_all(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Decode every frame, past errors, as FFmpeg does by default."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, av.error.FFmpegError):
            return
        try:
            yield from packet.decode()
        except av.error.FFmpegError:
            continue


def _decode_index(container: InputContainer, stream: VideoStream, *, fallback: _Index) -> _Index:
    seen = [(frame.pts, frame.key_frame) for frame in _decode_all(container, stream)]
    keyframes = [position for position, (_, is_keyframe) in enumerate(seen) if is_keyframe]
    if not keyframes:
        # Some decoders never set key_frame: then the demuxer's flags are all there is.
        flagged = {fallback.pts[position] for position in fallback.keyframes}
        keyframes = [position for position, (pts, _) in enumerate(seen) if pts in flagged]
    if seen and not keyframes:
        keyframes = [0]
    return _Index(pts=[pts for pts, _ in seen], keyframes=keyframes)


def _linear_shots(
    container: InputContainer,
    stream: VideoStream,
    index: _Index,
    *,
    picks: list[int],
    painter: _Painter,
) -> list[_Shot]:
    wanted = {index.keyframes[pick] for pick in picks}
    if not wanted:
        raise NoFramesError("No frame of the video can be decoded; is it damaged?")
    frames = enumerate(_decode_all(container, stream))
    return [painter.shoot(frame, position) for position, frame in frames if position in wanted]


class _Painter:
    """Turns frames of one stream into pixels of one size, and remembers the stream's facts."""

    def __init__(self, stream: VideoStream, sampling: Sampling, limits: Limits, *, native: bool) -> None:
        self.time_base = stream.time_base
        self.fps = float(stream.average_rate or 0)
        length = stream.duration * stream.time_base if stream.duration and stream.time_base else None
        container_s = stream.container.duration / av.time_base if stream.container.duration else 0.0  # type: ignore[attr-defined]
        self.duration_s = float(length) if length else container_s
        self.native_px = (stream.codec_context.width, stream.codec_context.height)
        self.rotation_deg = 0
        self._sampling = sampling
        self._limits = limits
        self._native = native
        self._size_px: tuple[int, int] | None = None

    def shoot(self, frame: VideoFrame, position: int) -> _Shot:
        _check_pixels(frame.width, frame.height, self._limits)
        return _Shot(
            pixels=_rgb(frame) if self._native else self._scaled(frame),
            pts=frame.pts if frame.pts is not None else -1,
            index=position,
            is_keyframe=bool(frame.key_frame),
        )

    def _scaled(self, frame: VideoFrame) -> npt.NDArray[np.uint8]:
        turns = round(frame.rotation / 90) % 4
        self.rotation_deg = turns * 90
        if self._size_px is None:
            self._size_px = fit_size(
                frame.width,
                frame.height,
                max_pixels=self._sampling.max_pixels,
                multiple_px=self._sampling.size_multiple_px,
            )
        width, height = self._size_px
        pixels = _rgb(frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC"))
        return np.rot90(pixels, turns) if turns else pixels


def _rgb(frame: VideoFrame) -> npt.NDArray[np.uint8]:
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _assemble(
    *,
    stream_facts: _Painter,
    index: _Index,
    picks: list[int],
    shots: list[_Shot],
    method: Literal["seek", "linear"],
    reason: str,
    decode_ms: float,
) -> Keyframes:
    place = {shot.index: row for row, shot in enumerate(shots)}
    pts = np.array([shot.pts for shot in shots], np.int64)
    return Keyframes(
        images=np.stack([shot.pixels for shot in shots]),
        pts=pts,
        time_s=pts.astype(np.float64) * float(stream_facts.time_base or 0),
        frame_index=np.array([shot.index for shot in shots], np.int64),
        is_keyframe=np.array([shot.is_keyframe for shot in shots], np.bool_),
        picks=np.array([place[index.keyframes[pick]] for pick in picks], np.int64),
        keyframes_in_file=len(index.keyframes),
        total_frames=len(index.pts) or None,
        fps=stream_facts.fps,
        duration_s=stream_facts.duration_s,
        native_width_px=stream_facts.native_px[0],
        native_height_px=stream_facts.native_px[1],
        rotation_deg=stream_facts.rotation_deg,
        method=method,
        reason=reason,
        decode_ms=decode_ms,
    )
