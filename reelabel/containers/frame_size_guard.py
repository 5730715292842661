"""Enforce the frame size limit on declared sizes, before memory is allocated for them."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import av
import av.error
import av.logging

from reelabel.errors import VideoTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from reelabel.limits import Limits

# FFmpeg requests buffers of this size even for tiny frames.
_MIN_PIXELS = 65_536
# Logged by `av_image_check_size2` in FFmpeg's libavutil/imgutils.c, and by dav1d. Only the message distinguishes
# this error from others.
_SIZE_REJECTED = re.compile(r"(?:Picture|Frame) size (\d+)x(\d+) (?:exceeds|is invalid)")


def decoder_limit_options(limits: Limits) -> dict[str, str]:
    """Return the FFmpeg options that make a decoder reject frames over the limit."""
    return {"max_pixels": str(max(limits.max_frame_pixels, _MIN_PIXELS))}


def check_frame_size(width_px: int, height_px: int, limits: Limits) -> None:
    """Raise if a frame size exceeds the limit.

    Raises:
        VideoTooLargeError: The size exceeds `limits.max_frame_pixels`.
    """
    if width_px * height_px > limits.max_frame_pixels:
        raise VideoTooLargeError(
            f"Frames of {width_px}x{height_px} exceed extract.max_frame_pixels ({limits.max_frame_pixels:,}).",
        )


def check_declared_size(codec: VideoCodecContext, packet: Packet[VideoStream] | None, limits: Limits) -> None:
    """Raise if a decoder rejected a packet because of its declared frame size.

    Not all decoders keep the size they rejected. So the packet is decoded again by a fresh decoder, whose log is
    searched for the size; the original decoder must not receive it twice.

    Raises:
        VideoTooLargeError: The declared size exceeds `limits.max_frame_pixels`.
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
    """Capture the errors that FFmpeg logs in this thread."""
    before = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before[0])
        av.logging.set_skip_repeated(before[1])
