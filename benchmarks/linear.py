"""The full linear decode, by PyAV alone: what every frame that we report is held against."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import av
import av.error
import numpy as np
from av.stream import Disposition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


@dataclass(frozen=True, slots=True)
class LinearFrame:
    """One frame as the decoder shows it.

    Attributes:
        pts: Presentation time in the stream's time base; None where there is none.
        is_marked: The decoder calls it a keyframe.
        is_flagged: The container calls the packet that brought it out a keyframe.
        digest: Of its size and its RGB pixels.
    """

    pts: int | None
    is_marked: bool
    is_flagged: bool
    digest: bytes


@dataclass(frozen=True, slots=True)
class LinearDecode:
    """Every frame of a video, in the order in which the decoder shows them."""

    frames: tuple[LinearFrame, ...]
    time_base_s: float

    @property
    def keyframes(self) -> list[int]:
        """List the positions of the marked frames, or of the flagged ones where none is marked."""
        marked = [position for position, frame in enumerate(self.frames) if frame.is_marked]
        return marked or [position for position, frame in enumerate(self.frames) if frame.is_flagged]

    @property
    def candidates(self) -> list[int]:
        """List the positions that may be picked: the keyframes, or every frame where there is none."""
        return self.keyframes or list(range(len(self.frames)))


def decode_linearly(path: Path, *, in_fresh_memory: bool = False) -> LinearDecode:
    """Decode the first video stream from its first packet to its last, past errors.

    Args:
        path: The file.
        in_fresh_memory: Keep every picture until the end, so that none lies where another did. Where
            this changes the decode, the decoder shows memory that it never wrote.

    Raises:
        ValueError: There is no video stream.
        av.error.FFmpegError: The file cannot be opened.
    """
    with av.open(f"file:{path}", metadata_errors="replace") as container:
        streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
        if not streams or streams[0].codec_context is None:
            raise ValueError("there is no video stream that can be decoded")
        # Slice threads switch FFmpeg's error concealment off: damage would look different each time. And
        # dav1d, which has threads of its own, shows less of a damaged stream with more of them.
        streams[0].codec_context.thread_type, streams[0].codec_context.thread_count = "NONE", 1
        kept: list[VideoFrame] | None = [] if in_fresh_memory else None
        frames = tuple(_frames(container, streams[0], kept))
        return LinearDecode(frames, float(streams[0].time_base or 0))


def digest_pixels(image: npt.NDArray[np.uint8]) -> bytes:
    """Condense an RGB image of shape (H, W, 3)."""
    return sha256(repr(image.shape).encode() + image.tobytes()).digest()


def _frames(
    container: InputContainer,
    stream: VideoStream,
    kept: list[VideoFrame] | None,
) -> Iterator[LinearFrame]:
    for packet in _packets(container, stream):
        try:
            frames = stream.codec_context.decode(packet)
        except MemoryError:
            raise
        except av.error.FFmpegError:
            continue
        if kept is not None:
            kept += frames
        for frame in frames:
            digest = digest_pixels(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8))
            yield LinearFrame(frame.pts, bool(frame.key_frame), packet is not None and packet.is_keyframe, digest)


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream] | None]:
    """Read until the end or the first error, then ask with None for what the decoder holds back."""
    try:
        for packet in container.demux(stream):
            # FFmpeg's own tools pass over empty packets, too: a decoder would take one for the end.
            if packet.size:
                yield packet
    except IndexError:
        # All is read: PyAV asks streams that appeared on the way for their last packet, and knows them not.
        pass
    except MemoryError:
        raise
    except av.error.FFmpegError:
        pass
    yield None
