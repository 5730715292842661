"""The margins that a container has players cut off: `clap` in MP4 and MOV, `PixelCrop` elements in Matroska.

FFmpeg's demuxers read both, but PyAV does not show what they found. So the stream's parameters are written as the
header of a Matroska file in memory, whose `PixelCrop` elements (RFC 9559, 5.1.4.1.28) are read.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import av
import av.error

from reelabel.index import Crop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.video.stream import VideoStream

_FORMATS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
_HEADER_OPTIONS = {"fflags": "bitexact"}  # else the muxer opens a source of random numbers, which a sandbox refuses
# Elements: a segment, which contains tracks, which contain entries, which contain the properties of video.
_PATH = (b"\x18\x53\x80\x67", b"\x16\x54\xae\x6b", b"\xae", b"\xe0")
_MARGINS = (b"\x54\xcc", b"\x54\xbb", b"\x54\xdd", b"\x54\xaa")


def read_crop(container: InputContainer, stream: VideoStream) -> Crop:
    """Return the margins that a container states for a stream; none if Matroska does not know the codec."""
    if container.format.name not in _FORMATS:
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
