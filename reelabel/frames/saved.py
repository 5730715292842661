"""Frames in a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from reelabel.frames.frame_file import encode_frame_file
from reelabel.frames.packets import read_frame_file
from reelabel.result import Cost, Frames, VideoInfo
from reelabel.sampled_frames import Orientation, SampledFrames

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.frames.pixels import LosslessEncoding
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampling.options import Sampling

_QUARTER_TURNS = (90, 270)


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
    facts = file.facts
    got = SampledFrames(
        images=file.images,
        pts=file.pts,
        time_s=file.time_s,
        frame_index=file.frame_index,
        is_keyframe=file.is_keyframe,
        picks=file.picks,
        deviation_s=file.deviation_s,
        keyframes_in_file=file.keyframes_in_file,
        keyframe_ms=file.keyframe_ms,
        first_ms=facts["first_ms"],
        first_s=facts["first_s"],
        total_frames=file.total_frames,
        fps=file.fps,
        duration_s=file.duration_s,
        pixel_aspect=facts["pixel_aspect"],
        native_width_px=facts["native_width_px"],
        native_height_px=facts["native_height_px"],
        orientation=Orientation(
            is_transposed=facts["rotation_deg"] in _QUARTER_TURNS, rotation_deg=facts["rotation_deg"]
        ),
        segment=file.segment,
        starts_s=file.starts_s,
        method=cast("Literal['index', 'seek', 'linear']", file.method),
        reason=file.reason,
        decode_ms=facts["decode_ms"],
        frames_decoded=file.frames_decoded,
        sampler=file.sampler,
        dropped_as_similar=facts["dropped_as_similar"],
    )
    cost = Cost(decode_ms=got.decode_ms, frames_decoded=got.frames_decoded)
    return Frames.of(got, VideoInfo.of(got), sampler=file.sampler, cost=cost)
