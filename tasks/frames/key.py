"""Where a video's frame file stands in the cache."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import av

from tasks.domain.digest import digest_of
from tasks.domain.segment import WHOLE

if TYPE_CHECKING:
    from tasks.domain import Sampling, Segment

SCHEMA_VERSION = 3
_TABLE_VERSION = 2


def decoder_versions() -> dict[str, str]:
    """Name what decides on pixels: PyAV and FFmpeg's libraries."""
    libraries = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    return {"av": _version("av"), **libraries}


@cache
def _version(package: str) -> str:
    # Read from a file by `importlib`, each time: for every video that would take longer than to hash its key.
    return version(package)


def frame_key(
    *,
    source_uri: str,
    fingerprint: str,
    sampling: Sampling,
    segment: Segment = WHOLE,
) -> str:
    """Derive a key from everything that decides on the file's frames, and from no job.

    How frames are stored without loss is no part of it: such files stand for each other.

    Args:
        source_uri: The video.
        fingerprint: Which version of it.
        sampling: Which frames, at what size.
        segment: The part of it.

    Returns:
        A path below the cache's root: `v3/ab/abcdef....arrow`.
    """
    digest = digest_of(
        {
            "source_uri": source_uri,
            "fingerprint": fingerprint,
            "segment_s": list(segment),
            # Files from before it was so counted from the first keyframe where that was not the first frame.
            **({} if segment.is_whole else {"segment_from": "first frame"}),
            "sampling": sampling.model_dump(mode="json"),
            "schema": SCHEMA_VERSION,
            "decoder": decoder_versions(),
            "jpeg": _version("pillow") if sampling.jpeg_quality else None,
        },
    )
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.arrow"


def index_key(*, source_uri: str, fingerprint: str) -> str:
    """Derive the key of a video's index file, which is the same whoever decodes the video.

    Returns:
        A path below the cache's root: `v3/ab/abcdef....index`.
    """
    digest = digest_of(
        {"source_uri": source_uri, "fingerprint": fingerprint, "schema": SCHEMA_VERSION, "table": _TABLE_VERSION}
    )
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"
