"""Frames in a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.frames.frame_file import encode_frame_file
from reelabel.frames.packets import read_frame_file
from reelabel.result import Cost, Frames, VideoInfo

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.frames.pixels import LosslessEncoding
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampling.options import Sampling


def write_frames(
    frames: Frames,
    *,
    sampling: Sampling,
    source_uri: str = "",
    fingerprint: str = "",
    lossless: LosslessEncoding = "zstd",
) -> bytes:
    """Return the bytes of a frame file (Arrow IPC) with some frames.

    Args:
        frames: At least one frame, with none of `unique` left out by slicing.
        sampling: How they were chosen, for its metadata; with a `jpeg_quality`, they are stored as JPEG.
        source_uri: URI of the video, for its metadata; signatures of URLs are left out.
        fingerprint: Version of the video, for its metadata.
        lossless: How pixels are stored otherwise.

    Raises:
        ConfigurationError: PyArrow is not installed.
        VideoTooLargeError: A frame is too large for JPEG.
    """
    sampled = frames.sampled()
    file = encode_frame_file(
        sampled, source_uri=source_uri, fingerprint=fingerprint, sampling=sampling, lossless=lossless
    )
    return file.data


def read_frames(source: Path | str | bytes, *, pool: DecodePool | None = None) -> Frames:
    """Read the frames of a frame file, given its path or its bytes.

    What the file does not hold is empty in `info`: the container and the codec.

    Args:
        source: The file.
        pool: Decodes a file that stores packets instead of pixels; others need none.

    Raises:
        FrameFileError: The file is damaged, of another version, or stores packets and there is no pool.
        OSError: The file cannot be read.
    """
    file = read_frame_file(source, pool=pool)
    got = file.sampled()
    cost = Cost(decode_ms=got.decode_ms, frames_decoded=got.frames_decoded)
    return Frames.of(got, VideoInfo.of(got), sampler=file.sampler, cost=cost)
