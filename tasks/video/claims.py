"""Pictures that claim more pixels than they may have, before memory is taken for them."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import av
import av.error
import av.logging

from infra.errors import VideoTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    from tasks.video.limits import Limits

# FFmpeg asks for that much even where a picture is tiny.
_LEAST_PIXELS = 65_536
# Said by `av_image_check_size2` in FFmpeg's libavutil/imgutils.c, and by dav1d; nothing but the
# message tells this error from others.
_REFUSAL = re.compile(r"(?:Picture|Frame) size (\d+)x(\d+) (?:exceeds|is invalid)")


def decoder_limits(limits: Limits) -> dict[str, str]:
    """Give the options with which FFmpeg refuses larger pictures itself."""
    return {"max_pixels": str(max(limits.max_frame_pixels, _LEAST_PIXELS))}


def check_frame_size(width_px: int, height_px: int, limits: Limits) -> None:
    """Refuse frames of too many pixels.

    Raises:
        VideoTooLargeError: They exceed `limits.max_frame_pixels`.
    """
    if width_px * height_px > limits.max_frame_pixels:
        raise VideoTooLargeError(
            f"Frames of {width_px}x{height_px} exceed extract.max_frame_pixels ({limits.max_frame_pixels:,}).",
        )


def check_claim(codec: VideoCodecContext, packet: Packet[VideoStream] | None, limits: Limits) -> None:
    """Tell, after a decoder refused a packet, whether it did so for the size of a picture.

    Some decoders keep the size they refused, some forget it. So the packet is shown to a fresh decoder,
    and what FFmpeg says of it is read; the first decoder must not see it twice.

    Raises:
        VideoTooLargeError: A picture exceeds `limits.max_frame_pixels`.
    """
    check_frame_size(codec.width, codec.height, limits)
    if packet is None:
        return
    fresh: VideoCodecContext = av.CodecContext.create(codec.name, "r")  # type: ignore[assignment]
    fresh.extradata, fresh.thread_count, fresh.options = codec.extradata, 1, decoder_limits(limits)
    with _heard() as messages, suppress(MemoryError, av.error.FFmpegError):
        fresh.decode(packet)
    for _, _, message in messages:
        if refusal := _REFUSAL.match(message):
            check_frame_size(int(refusal[1]), int(refusal[2]), limits)


@contextmanager
def _heard() -> Iterator[list[tuple[int, str, str]]]:
    """Gather the errors that FFmpeg speaks of in this thread."""
    before = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before[0])
        av.logging.set_skip_repeated(before[1])
