"""Properties of a video stream, and the limits on its duration and frame size.

Limits are checked twice: on what the file declares, before anything is allocated for it, and on the decoded frames.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import av.error
import av.logging
import numpy as np
from av.video.reformatter import ColorTrc

from reelabel.errors import VideoTooLargeError
from reelabel.index import LATEST_MS, Crop, Hdr, HeaderInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.options import Limits
    from reelabel.result import Selection


# FFmpeg requests buffers of this size even for tiny frames.
_MIN_PIXELS = 65_536
# Logged by `av_image_check_size2` in FFmpeg's libavutil/imgutils.c, and by dav1d. Only the message distinguishes
# this error from others.
_SIZE_REJECTED = re.compile(r"(?:Picture|Frame) size (\d+)x(\d+) (?:exceeds|is invalid)")
# Formats whose clock starts over after 26.5 hours (ISO/IEC 13818-1, 2.4.3.7), and its range.
WRAPPING, CLOCK_TICKS, _CLOCK_HZ = frozenset({"mpegts", "mpeg"}), 2**33, 90_000
_HDR_TRANSFERS: dict[int, Hdr] = {ColorTrc.SMPTE2084: "PQ", ColorTrc.ARIB_STD_B67: "HLG"}


def hdr_transfer(source: VideoFrame | VideoCodecContext) -> Hdr:
    """Return the name of the transfer function of a frame or a codec if it is of HDR; empty otherwise."""
    return _HDR_TRANSFERS.get(source.color_trc, "")


def header_info(container: InputContainer, stream: VideoStream) -> HeaderInfo:
    """Read the header. Some codecs know the aspect ratio only after a frame was decoded."""
    codec, fps = stream.codec_context, frame_rate(stream)
    duration_s = max(0.0, stated_duration_s(container, stream))
    aspect = stream.sample_aspect_ratio or codec.sample_aspect_ratio
    name = container.format.name.partition(",")[0]
    return HeaderInfo(
        container="mp4" if name == "mov" else name,
        codec=codec.codec.canonical_name,  # not that of its decoder, such as libdav1d
        width_px=codec.width,
        height_px=codec.height,
        hdr=hdr_transfer(codec),
        time_base=stream.time_base or Fraction(0),
        fps=fps,
        duration_s=duration_s,
        pixel_aspect=float(aspect or 1),
        crop=read_crop(container, stream),
        frames=stream.frames or round(fps * duration_s) or None,
    )


def stated_duration_s(container: InputContainer, stream: VideoStream) -> float:
    """Return the duration that a stream states, else its container; 0.0 if unknown.

    More than half of a clock's range is a guess from timestamps, of which the last may lie before the first.
    """
    stated_s = float((stream.duration or 0) * (stream.time_base or 0)) or _stated_s(container)
    is_guess = container.format.name in WRAPPING and stated_s > CLOCK_TICKS / 2 / _CLOCK_HZ
    return 0.0 if is_guess else stated_s


def _stated_s(container: InputContainer) -> float:
    """Return the duration that a container states.

    In Matroska, FFmpeg writes the time at which the video ends, not its length; the two differ if the video begins
    late, as parts of a recording do. Other muxers write the length.
    """
    stated, before = container.duration or 0, max(0, container.start_time or 0)
    muxers = (text for name, text in container.metadata.items() if name.lower() == "encoder")
    if container.format.name.startswith("matroska") and next(muxers, "").startswith("Lavf"):
        stated = max(0, stated - before) or stated
    return stated / av.time_base


def frame_rate(stream: VideoStream) -> float:
    """Return the average frame rate, else FFmpeg's guess, as OpenCV and thus vLLM's loaders do; 0.0 if unknown."""
    return float(stream.average_rate or stream.guessed_rate or 0)


def pts_to_s(
    pts: Sequence[int | None] | npt.NDArray[np.int64], time_base: Fraction | None
) -> npt.NDArray[np.float64] | None:
    if not time_base or any(each is None for each in pts):
        return None
    return np.asarray(pts, np.float64) * float(time_base)


def check_duration(duration_s: float, limits: Limits, *, what: str = "duration") -> None:
    """Raise VideoTooLargeError if a duration, named in the message by `what`, exceeds the limit or is no number."""
    if not duration_s <= limits.max_duration_s:
        raise VideoTooLargeError(
            f"The video's {what} is {duration_s:,.0f} s, which exceeds extract.max_duration_s "
            f"({limits.max_duration_s:,.0f} s)."
        )


def check_frame_times(frames: Selection, limits: Limits) -> None:
    """Raise VideoTooLargeError if the frames, or what else is known of the video's times, span more than the limit.

    Times count from the first frame, as recordings of live streams start anywhere. They may span too much by
    themselves, or at the video's frame rate; or be too large to be exact.
    """
    ends_ms = [] if frames.keyframe_ms is None else [*frames.keyframe_ms[:1], *frames.keyframe_ms[-1:]]
    first_ms = [] if frames.first_ms is None else [frames.first_ms]
    times_s = np.concatenate([frames.time_s, np.array([*ends_ms, *first_ms]) / 1e3])
    if not np.abs(times_s).max() < LATEST_MS / 1e3:
        raise VideoTooLargeError(
            f"The video's frame times reach {np.abs(times_s).max():,.0f} s, where they are no longer exact; remux it "
            "so that it starts at 0."
        )
    check_duration(float(np.ptp(times_s)), limits, what="span of frame times")
    check_duration(frames.duration_s, limits)
    if frames.fps:
        count = frames.total_frames or int(frames.frame_index.max()) + 1
        check_duration(count / frames.fps, limits, what=f"length of {count:,} frames at {frames.fps:g} fps")


def decoder_limit_options(limits: Limits) -> dict[str, str]:
    return {"max_pixels": str(max(limits.max_frame_pixels, _MIN_PIXELS))}


def check_frame_size(width_px: int, height_px: int, limits: Limits) -> None:
    if width_px * height_px > limits.max_frame_pixels:
        raise VideoTooLargeError(f"Frames of {width_px}x{height_px} have more than {limits.max_frame_pixels:,} pixels.")


def check_declared_size(codec: VideoCodecContext, packet: Packet[VideoStream] | None, limits: Limits) -> None:
    """Raise VideoTooLargeError if a decoder rejected a packet because of its declared frame size.

    Not all decoders keep the size they rejected. So the packet is decoded again by a fresh decoder, whose log is
    searched for the size; the original decoder must not receive it twice.
    """
    check_frame_size(codec.width, codec.height, limits)
    if packet is None:
        return
    fresh: VideoCodecContext = av.CodecContext.create(codec.name, "r")  # type: ignore[assignment]
    fresh.extradata, fresh.thread_count, fresh.options = codec.extradata, 1, decoder_limit_options(limits)
    with _captured_log() as messages, suppress(MemoryError, av.error.FFmpegError):
        fresh.decode(packet)
    for _, _, message in messages:
        if rejected := _SIZE_REJECTED.match(message):
            check_frame_size(int(rejected[1]), int(rejected[2]), limits)


@contextmanager
def _captured_log() -> Iterator[list[tuple[int, str, str]]]:
    before = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before[0])
        av.logging.set_skip_repeated(before[1])


# FFmpeg's demuxers read the margins that players cut off (`clap` in MP4 and MOV, `PixelCrop` elements in Matroska), but
# PyAV does not expose them. So the stream's parameters are written as the header of a Matroska file in memory, whose
# `PixelCrop` elements (RFC 9559, 5.1.4.1.28) are read.
_CROPPING_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
_HEADER_OPTIONS = {"fflags": "bitexact"}  # else the muxer opens a source of random numbers, which a sandbox refuses
# Elements: a segment, which contains tracks, which contain entries, which contain the properties of video.
_PATH = (b"\x18\x53\x80\x67", b"\x16\x54\xae\x6b", b"\xae", b"\xe0")
_MARGINS = (b"\x54\xcc", b"\x54\xbb", b"\x54\xdd", b"\x54\xaa")


def read_crop(container: InputContainer, stream: VideoStream) -> Crop:
    """Return the margins that a container states for a stream; none if Matroska does not know the codec."""
    if container.format.name not in _CROPPING_FORMATS:
        return Crop()
    header = io.BytesIO()
    try:
        with av.open(header, "w", format="matroska", options=_HEADER_OPTIONS) as written:
            written.add_stream_from_template(stream, opaque=True)
            written.start_encoding()
    except MemoryError:
        raise
    except (av.error.FFmpegError, ValueError):
        return Crop()
    margins = dict(_elements(header.getvalue(), _PATH))
    return Crop(*(int.from_bytes(margins.get(name, b"")) for name in _MARGINS))


def _elements(data: bytes, path: tuple[bytes, ...]) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and contents of the elements within those of a path (RFC 8794, 4)."""
    at = 0
    while at < len(data):
        name = data[at : at + 9 - data[at].bit_length()]
        at += len(name)
        length_bytes = 9 - data[at].bit_length()
        size = int.from_bytes(data[at : at + length_bytes]) & (1 << 7 * length_bytes) - 1
        at += length_bytes
        content = data[at : at + size]
        at += size
        if not path:
            yield name, content
        elif name == path[0]:
            yield from _elements(content, path[1:])
