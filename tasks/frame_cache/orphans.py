"""Removes orphans: frame files and embedding files whose video no longer exists or has changed."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from reelabel.errors import ConfigurationError, JobError, ObjectError, ObjectMissingError
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, redact_uri, scheme_of
from reelabel.unexpected import failing_alone
from tasks.frame_cache.eviction import EvictionResult, remove_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reelabel.sources.object_store import ObjectInfo, ObjectStore

# An Arrow file begins with its schema, whose metadata names the source.
_HEAD_BYTES = 64 * 1024
# The schema is preceded by the magic, a continuation marker, and the schema's length.
_MAGIC_BYTES = 8
_LENGTH_OFFSET = 12
_PREFIX_BYTES = 16
_MAX_CACHED_FINGERPRINTS = 10_000
_UNKNOWN = ""
_NAMING = (".arrow", ".vectors")  # files that name their video


def remove_orphans(
    objects: ObjectStore, root_uri: str, *, videos: ObjectStore, dry_run: bool = False
) -> EvictionResult:
    """Remove frame files and embedding files whose video no longer exists or has another fingerprint.

    It reads the schema of each file, and queries the store once per video. It keeps files of videos on the web or to
    which access is denied; of local videos whose folder is missing or empty, as on another machine or without a disk;
    and files of other kinds, which do not name their video. With `dry_run`, only count.
    """
    fingerprint_of = lru_cache(_MAX_CACHED_FINGERPRINTS)(lambda uri: _fingerprint(videos, uri))
    return remove_files(objects, root_uri, lambda info: _is_orphan(objects, info, fingerprint_of), dry_run=dry_run)


def _is_orphan(objects: ObjectStore, info: ObjectInfo, fingerprint_of: Callable[[str], str | None]) -> bool:
    source = _source(objects, info)
    if source is None or scheme_of(source[0]) in {*WEB_SCHEMES, INLINE_SCHEME}:
        return False
    uri, fingerprint = source
    return fingerprint_of(uri) not in {fingerprint, _UNKNOWN}


def _source(objects: ObjectStore, info: ObjectInfo) -> tuple[str, str] | None:
    """Read the URI and fingerprint of a file's video; None if it names none, or was removed meanwhile."""
    if not info.uri.endswith(_NAMING):
        return None
    try:
        head = objects.read_part(info.uri, start=0, size=_HEAD_BYTES, fingerprint=info.fingerprint)
        size = _PREFIX_BYTES + int.from_bytes(head[_LENGTH_OFFSET:_PREFIX_BYTES], "little")
        if len(head) < size <= info.size_bytes:  # it lists thousands of keyframes
            head = objects.read_part(info.uri, start=0, size=size, fingerprint=info.fingerprint)
        metadata = pa.ipc.read_schema(pa.py_buffer(head[_MAGIC_BYTES:])).metadata or {}
        facts = json.loads(metadata[b"reelabel"])
        return facts["source_uri"], facts["fingerprint"]
    except (ObjectError, pa.ArrowException, OSError, KeyError, ValueError):
        return None


def _fingerprint(objects: ObjectStore, uri: str) -> str | None:
    try:
        with failing_alone(f"The look at {redact_uri(uri)}"):
            return objects.stat(uri).fingerprint
    except ObjectMissingError:
        return _UNKNOWN if _is_out_of_sight(objects.local_path(uri)) else None
    except (ConfigurationError, JobError):  # access is denied, or the archive damaged: the video may still exist
        return _UNKNOWN


def _is_out_of_sight(path: Path | None) -> bool:
    """Whether a missing local file may be on another machine, or on a disk that is not mounted."""
    return path is not None and not (path.parent.is_dir() and any(path.parent.iterdir()))
