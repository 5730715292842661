"""The frame files of a live session: its kept frames, in parts, each sealed under its own name.

Unlike cached frames, they cannot be recomputed, so they are stored beside the cache, as `live/SESSION/PART.arrow`,
where neither eviction nor the removal of orphans reaches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import load_frames, write_frames
from reelabel.index import NO_PTS
from reelabel.result import Frames, Orientation, Selection
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal, embed_seal, verify_seal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import numpy.typing as npt

    from tasks.frame_cache.sealed_files import SealedFiles


class KeptFrame(NamedTuple):
    number: int  # among the session's kept frames, from 0
    time_s: float  # on the session's clock
    image: npt.NDArray[np.uint8]  # RGB pixels as the model sees them; shape (H, W, 3), uint8


def key_of(session_id: UUID, part: int) -> str:
    return f"live/{session_id}/{part:06d}.arrow"


def encode_part(frames: Sequence[KeptFrame], *, session_id: UUID, part: int, seal: Seal) -> bytes:
    """Encode at least one kept frame as a sealed frame file; all have one size and are in order of time."""
    times_s = np.array([frame.time_s for frame in frames])
    count, (height, width, _) = len(frames), frames[0].image.shape
    sampled = Frames.of(
        np.stack([frame.image for frame in frames]),
        Selection(
            pts=np.full(count, NO_PTS),
            time_s=times_s,
            frame_index=np.array([frame.number for frame in frames], np.int64),
            is_keyframe=np.ones(count, np.bool_),
            picks=np.arange(count),
            keyframes_in_file=count,
            keyframe_ms=np.round(times_s * 1e3).astype(np.int64),
            first_ms=round(times_s[0] * 1e3),
            total_frames=count,
            fps=0.0,
            duration_s=float(times_s[-1] - times_s[0]),
            native_width_px=width,
            native_height_px=height,
            orientation=Orientation(),
            method="linear",
            note="",
            decode_ms=0.0,
            frames_decoded=count,
        ),
    )
    sampling = Sampling(sampler="keyframes", num_frames=-1, max_pixels=602_112, size_multiple_px=28)
    identity = FrameIdentity(source_uri=f"live:{session_id}", fingerprint=f"{part:06d}", sampling=sampling)
    return embed_seal(write_frames(sampled, identity), seal, key_of(session_id, part))


def read_part(files: SealedFiles, key: str) -> Frames:
    """Read a part of a session's frames.

    Raises:
        ObjectMissingError: The file does not exist.
        FrameFileError: It is corrupted, was signed with another key, or is of another version.
    """
    data = files.objects.read(files.uri_of(key))
    verify_seal(data, files.seal, key)
    return load_frames(data)
