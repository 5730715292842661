"""How many threads may decode a video, where the process's memory is limited."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

    from reelabel.decode.packet_decoder import CodecParameters

_THREAD_BYTES = 128 * 1024**2  # a stack, and what the allocator reserves of the address space for a thread
_FRAMES = 20  # that a decoder may refer to, decode and hand over
_PIXEL_BYTES = 3  # of most formats at most
_SHARE = 2  # the other half is for the frames that are kept, the file and the interpreter


def affordable_threads(wanted: int, codec: VideoCodecContext | CodecParameters) -> int:
    """Return how many of the wanted threads half of the process's address space suffices for, at least one."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return wanted
    needed_bytes = _THREAD_BYTES + _FRAMES * _PIXEL_BYTES * codec.width * codec.height
    return max(1, min(wanted, limit_bytes // _SHARE // needed_bytes))
