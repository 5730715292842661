"""Exact frames from any video, as a vision-language model should see them.

>>> frames = reelabel.extract_keyframes("clip.mp4", sampling=reelabel.Sampling(num_frames=8))
>>> frames.images[frames.picks].shape, frames.time_s[frames.picks]

Needs PyAV and NumPy, and PyArrow for frame files; knows no service and no settings file. Names are imported
on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from reelabel.coverage import KeyframeCoverage
    from reelabel.errors import ReelabelError, VideoError
    from reelabel.extract import extract_keyframes
    from reelabel.frames.frame_file import FrameFile, encode_frame_file
    from reelabel.frames.packets import read_frame_file
    from reelabel.integrations.ray_data.prepare import PrepareVideo
    from reelabel.integrations.ray_data.request import PrepareRequest
    from reelabel.integrations.ray_data.rows import PreparedRow, VideoMeta
    from reelabel.limits import Limits
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.options import S3Options, WebOptions

_HOME = {
    "DecodePool": "reelabel.pool.decode_pool",
    "FrameFile": "reelabel.frames.frame_file",
    "SampledFrames": "reelabel.sampled_frames",
    "Limits": "reelabel.limits",
    "PrepareRequest": "reelabel.integrations.ray_data.request",
    "PrepareVideo": "reelabel.integrations.ray_data.prepare",
    "PreparedRow": "reelabel.integrations.ray_data.rows",
    "ReelabelError": "reelabel.errors",
    "S3Options": "reelabel.sources.options",
    "Sampling": "reelabel.sampling.options",
    "Segment": "reelabel.segment",
    "KeyframeCoverage": "reelabel.coverage",
    "VideoError": "reelabel.errors",
    "VideoMeta": "reelabel.integrations.ray_data.rows",
    "WebOptions": "reelabel.sources.options",
    "encode_frame_file": "reelabel.frames.frame_file",
    "extract_keyframes": "reelabel.extract",
    "read_frame_file": "reelabel.frames.packets",
}

__all__ = [
    "DecodePool",
    "FrameFile",
    "KeyframeCoverage",
    "Limits",
    "PrepareRequest",
    "PrepareVideo",
    "PreparedRow",
    "ReelabelError",
    "S3Options",
    "SampledFrames",
    "Sampling",
    "Segment",
    "VideoError",
    "VideoMeta",
    "WebOptions",
    "encode_frame_file",
    "extract_keyframes",
    "read_frame_file",
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
    """List the public names."""
    return __all__
