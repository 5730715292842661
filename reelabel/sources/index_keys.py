"""Keys of what is kept of a version of an object: its index file, and those of its parts if it is an archive."""

from __future__ import annotations

from reelabel.digest import json_digest
from reelabel.sources.object_info import unsigned_uri

SCHEMA_VERSION = 6  # of frame files and index files
_ARCHIVE_INDEX_VERSION = 1


def index_key(*, source_uri: str, fingerprint: str) -> str:
    """Derive an index file's key, `v6/ab/abcdef....index`, which is the same for all decoder versions."""
    video = {"source_uri": unsigned_uri(source_uri), "fingerprint": fingerprint}
    digest = json_digest(video | {"schema": SCHEMA_VERSION})
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"


def archive_index_key(*, source_uri: str, fingerprint: str, part: str) -> str:
    """Derive the key of an index of an archive, or of a part of it: a path as of `index_key`."""
    archive = {"archive_uri": unsigned_uri(source_uri), "fingerprint": fingerprint, "part": part}
    digest = json_digest(archive | {"schema": SCHEMA_VERSION, "index": _ARCHIVE_INDEX_VERSION})
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"
