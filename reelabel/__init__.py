"""Exact frames from any video, wherever it is.

>>> with reelabel.open("clip.mp4") as video:
...     len(video), video[7].shape, video.sample("uniform", num_frames=8)

Requires PyAV and NumPy, and PyArrow for frame files; depends on no service and no settings file. Names are imported
on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from reelabel.coverage import KeyframeCoverage
    from reelabel.errors import NoIndexError, NoSuchFrameError, ReelabelError, VideoError
    from reelabel.frames.cache_key import FrameIdentity
    from reelabel.frames.frame_file import read_frames, write_frames
    from reelabel.integrations.ray_data.cells import PreparedRow, VideoMeta
    from reelabel.integrations.ray_data.prepare import PrepareRequest, PrepareVideo
    from reelabel.options import Limits, S3Options, WebOptions
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.result import Cost, FrameIndex, Frames, VideoInfo
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectStore
    from reelabel.video import Video, extract_frames, open  # noqa: A004

_NAMES = {
    "coverage": ("KeyframeCoverage",),
    "errors": ("NoIndexError", "NoSuchFrameError", "ReelabelError", "VideoError"),
    "frames.cache_key": ("FrameIdentity",),
    "frames.frame_file": ("read_frames", "write_frames"),
    "integrations.ray_data.cells": ("PreparedRow", "VideoMeta"),
    "integrations.ray_data.prepare": ("PrepareRequest", "PrepareVideo"),
    "options": ("Limits", "S3Options", "WebOptions"),
    "pool.decode_pool": ("DecodePool",),
    "result": ("Cost", "FrameIndex", "Frames", "VideoInfo"),
    "sampling.options": ("Sampling",),
    "segment": ("Segment",),
    "sources.object_store": ("ObjectStore",),
    "video": ("Video", "extract_frames", "open"),
}
_HOME = {name: f"reelabel.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "Cost",
    "DecodePool",
    "FrameIdentity",
    "FrameIndex",
    "Frames",
    "KeyframeCoverage",
    "Limits",
    "NoIndexError",
    "NoSuchFrameError",
    "ObjectStore",
    "PrepareRequest",
    "PrepareVideo",
    "PreparedRow",
    "ReelabelError",
    "S3Options",
    "Sampling",
    "Segment",
    "Video",
    "VideoError",
    "VideoInfo",
    "VideoMeta",
    "WebOptions",
    "extract_frames",
    "open",
    "read_frames",
    "write_frames",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: `import reelabel` alone loads nothing else."""
        if name == "__version__":
            return import_module("importlib.metadata").version("reelabel")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
