"""What many videos are now, compared with what they were when a label was given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from infra.errors import ConfigurationError, VideoError
from tasks.frames.prepare import look_at_video

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.objects import ObjectInfo, ObjectStore

_LOOKUPS_AT_ONCE = 16


def fingerprints_of(objects: ObjectStore, uris: Sequence[str]) -> list[str | None]:
    """Look at videos, many by one request where their store lists them.

    Args:
        objects: Where URIs lead.
        uris: The videos; those that stand close together side by side.

    Returns:
        Each one's fingerprint; None where it is gone or refused.

    Raises:
        TransientError: The store did not answer.
    """
    listed = _listed(objects, uris)

    def look(uri: str) -> str | None:
        try:
            return (listed.get(uri) or look_at_video(objects, uri)).fingerprint
        except VideoError:
            return None

    with ThreadPoolExecutor(_LOOKUPS_AT_ONCE) as threads:
        return list(threads.map(look, uris))


def _listed(objects: ObjectStore, uris: Sequence[str]) -> dict[str, ObjectInfo]:
    try:
        return objects.stat_near(uris)
    except ConfigurationError:
        return {}  # one video's fault, as a bucket that is missing
