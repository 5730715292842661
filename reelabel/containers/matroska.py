"""Matroska and WebM: keyframes by the cues (RFC 9559)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av.error
import numpy as np

from reelabel.containers.container_index import (
    ContainerIndex,
    KeyframeIndex,
    demux_only,
    list_keyframes,
    read_first_packet,
    require_sought,
    seek_packet,
)
from reelabel.fast_path import FastPathUnavailableError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

    from reelabel.containers.container_index import BinaryFile, OpenVideo

_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_HEAD_BYTES = 4096
_LATEST = 2**62
_GUESSED_BYTES = 64 * 1024  # of a keyframe; the cues list no sizes


def _probe(file: BinaryFile, _size_bytes: int) -> bool:
    return file.read(len(_EBML)) == _EBML


def _read_index(video: OpenVideo) -> KeyframeIndex:
    demux_only(video)
    first = read_first_packet(video.container.demux(video.stream))
    _load_cues(video)
    _, pts, pos, _ = np.array(list_keyframes(video), np.int64).T
    # The cues list keyframes only.
    if first.pts is None or (first.is_keyframe and first.pts != video.stream.index_entries[0].timestamp):
        raise FastPathUnavailableError("the index does not start at the first packet")

    def read_packet(number: int) -> Packet[VideoStream]:
        packet = seek_packet(video, int(pts[number]))
        return require_sought(packet, is_expected=packet.pts == pts[number])

    return KeyframeIndex(
        pts=pts,
        pos=pos,
        size=np.minimum(np.diff(pos, append=pos[-1] + _GUESSED_BYTES), _GUESSED_BYTES),
        read_packet=read_packet,
        first_packet=first,
        first_pts=int(pts[0]) if first.is_keyframe else None,
    )


def _load_cues(video: OpenVideo) -> None:
    """Make FFmpeg read the cues, which it defers until the first seek.

    A seek to the end reads on from the last cue; without cues, it indexes the whole file.
    """
    try:
        video.container.seek(_LATEST, stream=video.stream)
    except av.error.FFmpegError:
        raise FastPathUnavailableError("a seek failed") from None


def _missing_bytes(file: BinaryFile, size_bytes: int) -> int:
    return max(0, _segment_end(file.read(_HEAD_BYTES)) - size_bytes)


def _segment_end(head: bytes) -> int:
    """Return the end of the Segment element (RFC 8794, section 4.4); 0 if its size is unknown, as in live streams."""
    start = head.find(_SEGMENT)
    if start < 0 or len(head) < start + 12:
        return 0
    first = head[start + 4]
    length_bytes = 9 - first.bit_length()
    if not first:
        return 0
    size = int.from_bytes(head[start + 4 : start + 4 + length_bytes]) & ((1 << 7 * length_bytes) - 1)
    is_open = size == (1 << 7 * length_bytes) - 1
    return 0 if is_open else start + 4 + length_bytes + size


MATROSKA = ContainerIndex(name="matroska", probe=_probe, read_index=_read_index, missing_bytes=_missing_bytes)
