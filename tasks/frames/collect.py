"""What stands in the cache, and making room in it: the files written first go first."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.objects import ObjectInfo, ObjectStore

# Nothing else below the cache's root is ours to remove.
_OURS = re.compile(r"/v\d+/[0-9a-f]{2}/[0-9a-f]{32}\.(arrow|index)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What making room came to.

    Attributes:
        kept: Files that stay, and their bytes.
        removed: Files that are gone (or would be), and their bytes.
    """

    kept: int
    kept_bytes: int
    removed: int
    removed_bytes: int


def cached_files(objects: ObjectStore, root_uri: str) -> Iterator[ObjectInfo]:
    """Walk through the cache's files by name, none of them held in memory."""
    return (info for info in objects.list(root_uri) if _OURS.search(info.uri))


def make_room(
    objects: ObjectStore,
    root_uri: str,
    *,
    written_before: datetime | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> Room:
    """Remove files that are too old, then the oldest until the rest fits.

    Walks through the cache twice where `max_bytes` is given: first to find the hour before which
    everything must go, so that memory holds one number per hour and no list of files. A file removed
    under a run fails that run's jobs on it with `frame_file_damaged`; the next run makes it anew.

    Args:
        objects: The store.
        root_uri: The cache's root.
        written_before: Files older than this go.
        max_bytes: The most that may stay.
        dry_run: Count only.

    Returns:
        What stays and what went.
    """
    hour, excess_bytes = _last_hour_to_go(objects, root_uri, written_before, max_bytes)
    kept = removed = kept_bytes = removed_bytes = 0
    for info in cached_files(objects, root_uri):
        written = _hour(info)
        goes = _is_before(info, written_before) or (hour is not None and written < hour)
        if not goes and written == hour and excess_bytes > 0:
            excess_bytes -= info.size_bytes
            goes = True
        if goes:
            removed, removed_bytes = removed + 1, removed_bytes + info.size_bytes
            if not dry_run:
                objects.remove(info.uri)
        else:
            kept, kept_bytes = kept + 1, kept_bytes + info.size_bytes
    return Room(kept=kept, kept_bytes=kept_bytes, removed=removed, removed_bytes=removed_bytes)


def _last_hour_to_go(
    objects: ObjectStore,
    root_uri: str,
    written_before: datetime | None,
    max_bytes: int | None,
) -> tuple[datetime | None, int]:
    """Find the hour of which a part must go, and how many bytes of it; everything older goes."""
    if max_bytes is None:
        return None, 0
    bytes_by_hour: Counter[datetime] = Counter()
    for info in cached_files(objects, root_uri):
        if not _is_before(info, written_before):
            bytes_by_hour[_hour(info)] += info.size_bytes
    excess_bytes = bytes_by_hour.total() - max_bytes
    for hour in sorted(bytes_by_hour):
        if excess_bytes <= bytes_by_hour[hour]:
            return (hour, excess_bytes) if excess_bytes > 0 else (None, 0)
        excess_bytes -= bytes_by_hour[hour]
    return None, 0


def _is_before(info: ObjectInfo, instant: datetime | None) -> bool:
    return instant is not None and info.modified is not None and info.modified < instant


def _hour(info: ObjectInfo) -> datetime:
    assert info.modified is not None  # S3 and folders always say
    return info.modified - timedelta(
        minutes=info.modified.minute,
        seconds=info.modified.second,
        microseconds=info.modified.microsecond,
    )
