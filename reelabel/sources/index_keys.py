"""Keys of index files, each of one version of an object."""

from __future__ import annotations

from reelabel.digest import json_digest
from reelabel.sources.object_info import unsigned_uri

SCHEMA_VERSION = 6  # of frame files and index files


def index_key(*, source_uri: str, fingerprint: str, part: str | None = None) -> str:
    """Derive an index file's key, `v6/ab/abcdef....index`, which is the same for all decoder versions.

    It is of a video, or of a part of an archive, which may be all of it: an empty text.
    """
    source = {"source_uri": unsigned_uri(source_uri), "fingerprint": fingerprint, "schema": SCHEMA_VERSION}
    digest = json_digest(source if part is None else source | {"part": part})
    return f"v{SCHEMA_VERSION}/{digest[:2]}/{digest}.index"
