"""Files whose header claims another length than they have."""

from __future__ import annotations

import struct

from benchmarks.media.matrix import Cell

_MATROSKA_DURATION = bytes.fromhex("448988")  # a float of eight bytes, in milliseconds
_AVI_FRAMES_AT = {b"avih": 24, b"strh": 40}  # from the name of the chunk to its count of frames


def claims_twice_the_frames() -> bytes:
    """Make an AVI whose header counts eighty frames, of which there are forty."""
    data = bytearray(Cell("avi", "mpeg4").make())
    for name, offset in _AVI_FRAMES_AT.items():
        at = data.index(name) + offset
        struct.pack_into("<I", data, at, 2 * struct.unpack_from("<I", data, at)[0])
    return bytes(data)


def claims_half_the_length() -> bytes:
    """Make a Matroska whose header claims half its length."""
    data = bytearray(Cell("mkv", "h264").make())
    at = data.index(_MATROSKA_DURATION) + len(_MATROSKA_DURATION)
    struct.pack_into(">d", data, at, struct.unpack_from(">d", data, at)[0] / 2)
    return bytes(data)
