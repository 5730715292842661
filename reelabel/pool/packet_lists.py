"""Transfer of a list of packets from a decoding process, as `reelabel.pool.transfer` does for frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import InvalidAnswerError
from reelabel.packet_list import PacketList
from reelabel.pool.messages import Packets
from reelabel.pool.transfer import Column, pack_columns, unpack_columns

if TYPE_CHECKING:
    from reelabel.pool.messages import Facts, Frames


def _columns(message: Packets) -> list[Column]:
    rows = (message.count,)
    return [
        Column("times_ms", np.int64, rows),
        Column("sizes_bytes", np.int64, rows),
        Column("is_keyframe", np.uint8, rows),
        Column("time_s", np.float64, rows),
        Column("pts", np.int64, rows),
        Column("pos", np.int64, rows),
    ]


def pack_packets(listed: PacketList) -> tuple[Packets, int]:
    """Write a list of packets to a message and a memory file, in a decoding process.

    Raises:
        MemoryError: There is no room for the file.
    """
    message = Packets(count=len(listed.times_ms), fps=listed.fps, duration_s=listed.duration_s, listed=listed.listed)
    return message, pack_columns((column, getattr(listed, column.name)) for column in _columns(message))


def unpack_packets(message: Packets | Facts | Frames, descriptor: int, *, max_bytes: int) -> PacketList:
    """Assemble a list of packets from a message and its memory file, in the pool.

    Raises:
        InvalidAnswerError: It is none, or contradicts itself.
    """
    if not isinstance(message, Packets):
        raise InvalidAnswerError("something else than a list of packets")
    arrays = unpack_columns(_columns(message), descriptor, max_bytes=max_bytes)
    times, sizes, flags = arrays["times_ms"], arrays["sizes_bytes"], arrays["is_keyframe"]
    times_s = arrays["time_s"]
    is_rising = (times[1:] >= times[:-1]).all() and np.isfinite(times_s).all() and (times_s[1:] >= times_s[:-1]).all()
    if not is_rising or (sizes < 0).any() or (arrays["pos"] < -1).any() or flags.max() > 1:
        raise InvalidAnswerError("wrong values of a list of packets")
    return PacketList(
        times_ms=times,
        sizes_bytes=sizes,
        is_keyframe=flags.view(np.bool_),
        time_s=times_s,
        pts=arrays["pts"],
        pos=arrays["pos"],
        fps=message.fps,
        duration_s=message.duration_s,
        listed=message.listed,
    )
