"""The film strip of a described video, from the frame files that it was embedded from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import FrameFileError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.segment import Segment
from tasks.embedding.pieces import cut_pieces
from tasks.report.strip import thumbnail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.frames.frame_file import FrameFile
    from tasks.domain import DescribeSpec, Job

_FRAMES = 24
# Of a long video: each is read whole for a few frames of it.
_MAX_PIECES = 8
_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StripFrame:
    """One frame of a film strip.

    Attributes:
        time_s: Seconds since the video's first frame.
        image: Thumbnail as a WebP data URI.
    """

    time_s: float
    image: str


def read_strip(cache: FrameCache, job: Job, row: RowMapping, spec: DescribeSpec) -> tuple[StripFrame, ...]:
    """Read frames of a video, evenly spread and with the first one of each scene; none if they are not in the cache."""
    if not row["frame_pixels"]:
        return ()
    segment, pixels = Segment.of(job.start_s, job.end_s), row["frame_pixels"]
    pieces = list(cut_pieces(segment, row["duration_s"], spec, frame_pixels=pixels))
    kept = sorted(set(np.linspace(0, len(pieces) - 1, min(len(pieces), _MAX_PIECES)).round().astype(int).tolist()))
    starts_s = [scene["start_s"] for scene in row["scenes"]]
    frames: list[StripFrame] = []
    for part, chunks in (pieces[number] for number in kept):
        identity = FrameIdentity(
            source_uri=job.video_uri,
            fingerprint=row["source_fingerprint"],
            sampling=spec.sampling(chunks=chunks, max_pixels=pixels),
            segment=part,
        )
        if (file := cache.find(identity)) and file.encoding != "packets":
            with suppress(FrameFileError):
                frames += _frames(file, max(1, _FRAMES // len(kept)), starts_s)
    return tuple(frames)


def _frames(file: FrameFile, count: int, starts_s: Sequence[float]) -> list[StripFrame]:
    times_s = file.time_s - float(file.facts["first_ms"] or 0) / _MS
    even = np.linspace(0, len(times_s) - 1, min(len(times_s), count)).round().astype(int).tolist()
    inside = [start_s for start_s in starts_s if times_s[0] <= start_s <= times_s[-1]]
    firsts = np.searchsorted(times_s, inside[:count]).tolist()
    aspect = float(file.facts.get("pixel_aspect", 1.0)) or 1.0
    return [
        StripFrame(time_s=round(float(times_s[row]), 3), image=thumbnail(file.images[row], pixel_aspect=aspect))
        for row in sorted({*even, *firsts})
    ]
