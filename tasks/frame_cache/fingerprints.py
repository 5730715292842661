"""Current fingerprints of many videos, for comparison with those they had when labelled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError, VideoError
from reelabel.frames.extractor import stat_video

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_MAX_CONCURRENT_LOOKUPS = 16


def current_fingerprints(objects: ObjectStore, uris: Sequence[str]) -> list[str | None]:
    """Look up the fingerprints of videos, many per request if their store can list them.

    Args:
        objects: The object store, web and local files, by URI.
        uris: The videos, sorted so that those in the same folder are adjacent.

    Returns:
        The fingerprint of each video; None if it is missing or refused.

    Raises:
        TransientError: The store is unavailable.
    """
    listed = _listed(objects, uris)

    def look_up(uri: str) -> str | None:
        try:
            return (listed.get(uri) or stat_video(objects, uri)).fingerprint
        except VideoError:
            return None

    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKUPS) as threads:
        return list(threads.map(look_up, uris))


def _listed(objects: ObjectStore, uris: Sequence[str]) -> dict[str, ObjectInfo]:
    try:
        return objects.stat_many_near(uris)
    except ConfigurationError:
        return {}  # caused by a single video, such as one in a missing bucket
