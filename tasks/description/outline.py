"""Outlines: all that a video's description is made of but for the banks; those of a shard's videos lie in one file.

With them, another bank costs reading one vector a chunk. The file is an Arrow IPC file behind its seal, in whose column
`vector` (float32) are the pooled vectors of the chunks of one video after another.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel import arrow as pa
from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from tasks.description.kept import Kept
from tasks.description.pooling import PooledChunks
from tasks.description.scene_file import finder_version
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.merge import Scene
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


# Chunks of one file, 48 MiB of vectors of 768.
MOST_CHUNKS = 16_384
_VERSION = 1
_VIDEOS_KEY = b"videos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The outline of one video.

    Attributes:
        duration_s: Length of the video, or of the segment.
        frames: Frames that it is described by.
        note: What limits them; empty if nothing does.
        pooled: The vectors of its chunks.
        changes: Changes of scene.
        scenes: The scenes.
    """

    duration_s: float
    frames: int
    note: str
    pooled: PooledChunks = field(repr=False)
    changes: SceneChanges = field(repr=False)
    scenes: tuple[Scene, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineFiles(SealedFiles):
    """Outlines under the root of the frame cache; those that must not be used count as missing."""

    def read(self, pack_key: str, *, method: str, threshold: float, dimensions: int) -> Kept[Outline]:
        """Read the outlines of a shard's videos, by the keys of their embedding files.

        Args:
            pack_key: Key of the pack of their embeddings.
            method: How changes of scene are found.
            threshold: The method's threshold.
            dimensions: Size of a vector.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        facts = {"outlines": _VERSION, "finder": finder_version(), "pack": pack_key}
        facts |= {"method": method, "threshold": threshold}
        digest = json_digest(facts)
        key = f"v{_VERSION}/{digest[:2]}/{digest}.outlines"
        try:
            data = self.read_sealed(key)
            return Kept(key, decode_outlines(data, dimensions=dimensions), _chunks, MOST_CHUNKS)
        except (ObjectError, SealError, pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError):
            return Kept(key, {}, _chunks, MOST_CHUNKS)

    def write(self, kept: Kept[Outline]) -> None:
        """Write the outlines of a shard's videos in place of those that are there, if they have changed.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        if changed := kept.changed():
            self.replace_sealed(kept.key, encode_outlines(changed))


def _chunks(outline: Outline) -> int:
    return len(outline.pooled.counts)


def encode_outlines(outlines: Mapping[str, Outline]) -> bytes:
    """Return the bytes of a file of outlines, of at least one video."""
    vectors = np.concatenate([each.pooled.vectors for each in outlines.values()])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    facts = json.dumps([_facts(key, each) for key, each in outlines.items()]).encode()
    table = pa.table({"vector": column}).replace_schema_metadata({_VIDEOS_KEY: facts})
    return pa.arrow_file(table)


def decode_outlines(data: memoryview, *, dimensions: int) -> dict[str, Outline]:
    """Read a file of outlines whose seal is valid.

    Args:
        data: Its bytes.
        dimensions: Size of a vector.

    Raises:
        ValueError: It contradicts itself; so do KeyError, TypeError, OSError and pyarrow's errors.
    """
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    values = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors: npt.NDArray[np.float32] = values.reshape(len(table), dimensions)
    if vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise ValueError("vectors are not finite float32")
    found, end = {}, 0
    for each in json.loads(table.schema.metadata[_VIDEOS_KEY]):
        start, end = end, end + sum(count > 0 for count in each["counts"])
        found[str(each["key"])] = _outline(each, vectors[start:end])
    if end != len(table):
        raise ValueError("a file of outlines whose videos have other chunks than it")
    return found


def _facts(key: str, outline: Outline) -> dict[str, Any]:
    return {
        "key": key,
        "duration_s": outline.duration_s,
        "frames": outline.frames,
        "note": outline.note,
        "counts": outline.pooled.counts,
        "changes": asdict(outline.changes),
        "scenes": outline.scenes,
    }


def _outline(facts: dict[str, Any], vectors: npt.NDArray[np.float32]) -> Outline:
    changes = facts["changes"]
    return Outline(
        duration_s=float(facts["duration_s"]),
        frames=int(facts["frames"]),
        note=str(facts["note"]),
        pooled=PooledChunks(counts=tuple(facts["counts"]), vectors=vectors),
        changes=SceneChanges(
            changes=tuple(SceneChange(**change) for change in changes["changes"]),
            method=str(changes["method"]),
            note=str(changes["note"]),
        ),
        scenes=tuple(Scene(*scene) for scene in facts["scenes"]),
    )
