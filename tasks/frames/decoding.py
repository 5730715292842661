"""The pool of decoding processes and its limits, by the settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tasks.video.limits import Limits
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from infra.settings import Settings


_MOST_THREADS = 8  # for sixteen frames, more are not worth their memory


def decode_pool(settings: Settings, *, processes: int) -> DecodePool:
    """Start a pool; where there are more cores than processes, each decodes by several threads."""
    extract = settings.extract
    return DecodePool(
        processes=processes,
        timeout_s=extract.timeout_s,
        memory_mib=extract.memory_mib,
        cpu_s=extract.max_cpu_s,
        threads=max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // processes)),
    )


def video_limits(settings: Settings) -> Limits:
    """Say what one video may cost."""
    extract = settings.extract
    return Limits(
        max_video_bytes=extract.max_video_bytes,
        max_frame_pixels=extract.max_frame_pixels,
        max_frames=extract.max_frames,
        max_duration_s=extract.max_duration_s,
    )
