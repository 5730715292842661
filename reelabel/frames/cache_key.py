"""Keys of frame files and index files in the cache."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import av

from reelabel.digest import json_digest
from reelabel.segment import WHOLE

if TYPE_CHECKING:
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment

SCHEMA_VERSION = 3
_TABLE_VERSION = 2


def decoder_versions() -> dict[str, str]:
    """Return the versions that determine pixels: those of PyAV and FFmpeg's libraries."""
    libraries = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    return {"av": _version("av"), **libraries}


@cache
def _version(package: str) -> str:
    # Cached, as importlib reads a file on each call, which takes longer than hashing the key.
    return version(package)


def frame_key(
    *,
    source_uri: str,
    fingerprint: str,
    sampling: Sampling,
    segment: Segment = WHOLE,
) -> str:
    """Derive a frame file's key from everything that determines its frames.

    The key depends on no job, and on no lossless encoding: files that differ in that are interchangeable.

    Args:
        source_uri: URI of the video.
        fingerprint: Version of the video.
        sampling: Which frames, and at what size.
        segment: The part of the video that is sampled.

    Returns:
        A path relative to the cache's root: `v3/ab/abcdef....arrow`.
    """
    digest = json_digest(
        {
            "source_uri": source_uri,
            "fingerprint": fingerprint,
            "segment_s": list(segment),
            # Earlier versions measured segments from the first keyframe, even if that was not the first frame.
            **({} if segment.is_whole else {"segment_from": "first frame"}),
            "sampling": sampling.model_dump(mode="json"),
            "schema": SCHEMA_VERSION,
            "decoder": decoder_versions(),
            "jpeg": _version("pillow") if sampling.jpeg_quality else None,
        },
    )
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.arrow"


def index_key(*, source_uri: str, fingerprint: str) -> str:
    """Derive an index file's key, which is the same for all decoder versions.

    Returns:
        A path relative to the cache's root: `v3/ab/abcdef....index`.
    """
    digest = json_digest(
        {"source_uri": source_uri, "fingerprint": fingerprint, "schema": SCHEMA_VERSION, "table": _TABLE_VERSION}
    )
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"
