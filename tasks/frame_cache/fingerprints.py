"""What a look at many videos tells: fingerprints, to compare with those they had when labelled, and faults."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError, VideoEmptyError, VideoError
from reelabel.frames.extractor import stat_video
from reelabel.sources.object_info import redact_uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


def unusable_videos(
    objects: ObjectStore, uris: Sequence[str], *, allow_roots: tuple[Path, ...] = ()
) -> dict[str, VideoError]:
    """Find the videos that cannot be used, as far as a look at their names, permissions and sizes tells.

    Web servers are not asked: an answer now says little about the next one.

    Args:
        objects: The object store, web and local files, by URI.
        uris: The videos, sorted so that those in the same folder are adjacent.
        allow_roots: Folders that local videos must lie in; empty allows every folder.

    Raises:
        TransientError: The store is unavailable.
    """
    looked_at = [uri for uri in uris if not uri.startswith(("http://", "https://"))]
    listed = _listed(objects, looked_at)

    def fault_of(uri: str) -> VideoError | None:
        try:
            info = listed.get(uri) or stat_video(objects, uri, allow_roots=allow_roots)
        except VideoError as error:
            return error
        return None if info.size_bytes else VideoEmptyError(f"{redact_uri(uri)} is empty.")

    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKUPS) as threads:
        faults = zip(looked_at, threads.map(fault_of, looked_at), strict=True)
        return {uri: fault for uri, fault in faults if fault}


def _listed(objects: ObjectStore, uris: Sequence[str]) -> dict[str, ObjectInfo]:
    try:
        return objects.stat_many_near(uris)
    except ConfigurationError:
        return {}  # caused by a single video, such as one in a missing bucket
