"""Packs: the embeddings of a shard's videos in one file beside their own, so that they can be read at once.

A pack is an Arrow IPC file behind its seal, with the columns of an embedding file, video after video. Its key is that
of the videos, their segments and all else that they are asked for by, but for their versions. So a pack is found
whatever has become of a video; a video that has another version since is not found in it, and is read alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel import arrow as pa
from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from reelabel.sources.object_info import unsigned_uri
from tasks.description.embeddings import Embeddings
from tasks.description.kept import Kept
from tasks.embedding.embedding_file import restored
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from reelabel.segment import Segment
    from tasks.embedding.embedding_file import EmbeddingIdentity

# Fewer videos are read one by one.
LEAST_VIDEOS = 8
# Frames of a pack, 24 MiB of vectors of 768; a video that no longer fits is read alone, which costs little a frame.
MOST_FRAMES = 16_384
_VERSION = 1
_VIDEOS_KEY = b"videos"


def pack_key(videos: Iterable[tuple[str, Segment]], like: EmbeddingIdentity) -> str:
    """Return the key of the pack of some videos and segments, in any order; a path relative to the cache's root."""
    shown = sorted({(unsigned_uri(uri), *map(str, segment)) for uri, segment in videos})
    digest = json_digest({"pack": _VERSION, "videos": shown, **like.shared})
    return f"v{_VERSION}/{digest[:2]}/{digest}.pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFiles(SealedFiles):
    """Packs under the root of the frame cache; one that must not be used counts as missing, and is written again."""

    def read(self, key: str, *, dimensions: int) -> Kept[Embeddings]:
        """Read a pack of vectors of so many dimensions.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        try:
            data = self.read_sealed(key)
            return Kept(key, decode_pack(data, dimensions=dimensions), _frames, MOST_FRAMES)
        except (ObjectError, SealError, pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError):
            return Kept(key, {}, _frames, MOST_FRAMES)

    def write(self, kept: Kept[Embeddings]) -> None:
        """Write a pack in place of the one that is there, if it has changed.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        videos = kept.changed()
        if videos and len(videos) >= LEAST_VIDEOS:
            self.replace_sealed(kept.key, encode_pack(videos))


def _frames(embeddings: Embeddings) -> int:
    return len(embeddings.pts_ms)


def encode_pack(videos: Mapping[str, Embeddings]) -> bytes:
    """Return the bytes of a pack, of at least one video."""
    vectors = np.concatenate([each.vectors for each in videos.values()]).astype(np.float16)
    columns = {
        "pts_ms": pa.array(np.concatenate([each.pts_ms for each in videos.values()]), pa.int64()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
    }
    facts = [
        {
            "key": key,
            "frames": len(each.pts_ms),
            "first_ms": each.first_ms,
            "duration_s": each.duration_s,
            "note": each.note,
        }
        for key, each in videos.items()
    ]
    table = pa.table(columns).replace_schema_metadata({_VIDEOS_KEY: json.dumps(facts).encode()})
    return pa.arrow_file(table)


def decode_pack(data: memoryview, *, dimensions: int) -> dict[str, Embeddings]:
    """Read a pack whose seal is valid.

    Raises:
        ValueError: It contradicts itself; so do KeyError, TypeError, OSError and pyarrow's errors.
    """
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all().combine_chunks()
    facts = json.loads(table.schema.metadata[_VIDEOS_KEY])
    values = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors = restored(values.reshape(len(table), dimensions))
    pts_ms: npt.NDArray[np.int64] = table["pts_ms"].to_numpy().astype(np.int64)
    ends = np.cumsum([int(each["frames"]) for each in facts])
    if len(ends) == 0 or ends[-1] != len(table):
        raise ValueError("a pack whose videos have other frames than it")
    return {
        str(each["key"]): Embeddings(
            vectors=vectors[end - each["frames"] : end],
            pts_ms=pts_ms[end - each["frames"] : end],
            first_ms=int(each["first_ms"]),
            duration_s=float(each["duration_s"]),
            note=str(each["note"]),
        )
        for each, end in zip(facts, ends.tolist(), strict=True)
    }
