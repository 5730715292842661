"""Cache eviction: remove files by age, then the oldest until the cache fits its size limit."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

# The kinds of files by suffix. Nothing else under the cache's root may be removed.
KINDS = {
    "arrow": "frame file",
    "index": "index file",
    "vectors": "embedding file",
    "pack": "embedding file of a shard",
    "scenes": "file of cuts",
}
_CACHE_FILE = re.compile(rf"/v\d+/[0-9a-f]{{2}}/[0-9a-f]{{32}}\.({'|'.join(KINDS)})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionResult:
    """Numbers and sizes of the files that were kept, and of those removed, or to be removed in a dry run."""

    kept: int
    kept_bytes: int
    removed: int
    removed_bytes: int


def cached_files(objects: ObjectStore, root_uri: str) -> Iterator[ObjectInfo]:
    """Yield the cache's files in order of name, without a list in memory."""
    return (info for info in objects.list(root_uri) if _CACHE_FILE.search(info.uri))


def kind_of(info: ObjectInfo) -> str:
    return KINDS[info.uri.rpartition(".")[2]]


def remove_files(
    objects: ObjectStore, root_uri: str, is_removed: Callable[[ObjectInfo], bool], *, dry_run: bool
) -> EvictionResult:
    """Remove the cache's files for which `is_removed` is true; it is called once per file, in order of name."""
    kept = removed = kept_bytes = removed_bytes = 0
    for info in cached_files(objects, root_uri):
        if is_removed(info):
            removed, removed_bytes = removed + 1, removed_bytes + info.size_bytes
            if not dry_run:
                objects.remove(info.uri)
        else:
            kept, kept_bytes = kept + 1, kept_bytes + info.size_bytes
    return EvictionResult(kept=kept, kept_bytes=kept_bytes, removed=removed, removed_bytes=removed_bytes)


def evict(
    objects: ObjectStore,
    root_uri: str,
    *,
    written_before: datetime | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> EvictionResult:
    """Remove files that were written before a time, then the oldest until the rest fits; None sets no limit.

    With `max_bytes`, the cache is listed twice: the first pass finds the hour before which all files are removed, with
    one number per hour in memory instead of a list of files. A run that still needs a removed file extracts it again.
    With `dry_run`, only count.
    """
    hour, excess_bytes = _boundary_hour(objects, root_uri, written_before, max_bytes)

    def is_evicted(info: ObjectInfo) -> bool:
        nonlocal excess_bytes
        if _is_before(info, written_before) or (hour is not None and _hour(info) < hour):
            return True
        if _hour(info) != hour or excess_bytes <= 0:
            return False
        excess_bytes -= info.size_bytes
        return True

    return remove_files(objects, root_uri, is_evicted, dry_run=dry_run)


def _boundary_hour(
    objects: ObjectStore,
    root_uri: str,
    written_before: datetime | None,
    max_bytes: int | None,
) -> tuple[datetime | None, int]:
    """Find the hour of which only some files are removed, and their bytes; all older files are removed."""
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


def _is_before(info: ObjectInfo, time: datetime | None) -> bool:
    return time is not None and info.modified is not None and info.modified < time


def _hour(info: ObjectInfo) -> datetime:
    assert info.modified is not None  # always known for S3 and folders
    return info.modified.replace(minute=0, second=0, microsecond=0)
