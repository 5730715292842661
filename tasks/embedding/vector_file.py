"""Reads and writes vector files: the vectors of a video (`.vectors`), or of all videos of a shard (`.pack`).

An Arrow IPC file with one row per frame, video after video, next to the frame files and signed like them. Columns:
`pts_ms` (int64) and `vector` (a fixed-size list of float16). The schema's metadata holds the request as JSON under
`reelabel`, the facts of its videos under `videos`, and its checksum and signature under `seal`.

The key of a shard's file covers the videos and the request, but not the videos' versions. So the file is found even if
a video has changed; the changed video is not found in it, and is read separately.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from reelabel import arrow as pa
from reelabel.digest import json_digest
from reelabel.errors import FrameFileError, ObjectMissingError
from reelabel.frames.cache_key import decoder_versions
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK, METADATA_KEY, NO_KEY, Seal, embed_checksum, embed_seal, verify_seal
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import redact_uri, unsigned_uri
from tasks.description.embeddings import Cuts, Embeddings, normalize
from tasks.description.scenes.cuts import FINDER_VERSION
from tasks.domain import ModelIdentity
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt


# A shard with fewer videos has no file: they are read one by one.
LEAST_VIDEOS = 8
# Frames of a shard's file, 24 MiB of vectors of 768; a video that does not fit is read separately, which costs little
# per frame.
MOST_FRAMES = 16_384

_SCHEMA_VERSION = 1
_FACTS_KEY, _VIDEOS_KEY = b"reelabel", b"videos"
_DAMAGE = (OSError, LookupError, ValueError, ArithmeticError, TypeError, AttributeError, RecursionError)
_OF_A_VIDEO = ("source_uri", "fingerprint", "segment_s")


@lru_cache(maxsize=64)
def _as_json(options: ModelIdentity | Sampling) -> dict[str, Any]:
    # Cached, because it takes longer than hashing the key, and is the same for all videos of a run.
    return options.to_dict() if isinstance(options, Sampling) else options.model_dump(mode="json")


@dataclass(frozen=True, kw_only=True)
class VectorKey:
    """Everything that determines the vectors of one video."""

    source_uri: str = field(repr=False)  # may contain a signature, or a whole video
    fingerprint: str
    sampling: Sampling  # which frames, and at what size; for describe, also how many per chunk
    segment: Segment = WHOLE
    model: ModelIdentity
    dimensions: int
    size_px: int  # side of the square that frames are resized to, or of one with the same number of pixels
    versions: dict[str, str]  # versions of the packages used for embedding
    chunk_s: float | None = None  # chunk length by which frames were selected; None if independent of chunks

    @cached_property
    def key(self) -> str:
        """The file's key, a path relative to the cache's root: `v1/ab/abcdef....vectors`."""
        return _path({"kind": "embeddings", **self._values}, "vectors")

    def facts(self) -> dict[str, Any]:
        """Return the key as JSON values, as in the file: without embedded videos and signed queries."""
        return self._values | {"key": self.key, "source_uri": redact_uri(self._values["source_uri"])}

    def of_shard(self, videos: Iterable[tuple[str, Segment]]) -> str:
        """Return the key of the file of some videos and segments, in any order, with the same request."""
        shown = sorted({(unsigned_uri(uri), *map(str, segment)) for uri, segment in videos})
        shared = {name: value for name, value in self._values.items() if name not in _OF_A_VIDEO}
        return _path({"videos": shown, **shared}, "pack")

    @cached_property
    def _values(self) -> dict[str, Any]:
        return {
            "embeddings": _SCHEMA_VERSION,
            "source_uri": unsigned_uri(self.source_uri),
            "fingerprint": self.fingerprint,
            "segment_s": list(self.segment),
            "sampling": _as_json(self.sampling),
            "chunk_s": self.chunk_s,
            "model": _as_json(self.model),
            "dimensions": self.dimensions,
            "size_px": self.size_px,
            "versions": {**decoder_versions(), **self.versions},
        }


def _path(facts: dict[str, Any], suffix: str) -> str:
    digest = json_digest(facts)
    return f"v{_SCHEMA_VERSION}/{digest[:2]}/{digest}.{suffix}"


def encode(videos: Mapping[str, Embeddings], facts: Mapping[str, Any], seal: Seal = NO_KEY) -> bytes:
    """Return the bytes of a file of at least one video, by key; `facts["key"]` is the file's own."""
    vectors = np.concatenate([each.vectors for each in videos.values()]).astype(np.float16)
    columns = {
        "pts_ms": pa.array(np.concatenate([each.pts_ms for each in videos.values()]), pa.int64()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
    }
    of_videos = [
        {
            "key": key,
            "frames": len(each.pts_ms),
            "first_ms": each.first_ms,
            "duration_s": each.duration_s,
            "note": each.note,
            "cuts": each.cuts
            and {"finder": FINDER_VERSION, "candidates": each.cuts.candidates, "note": each.cuts.note},
        }
        for key, each in videos.items()
    ]
    metadata = {
        _FACTS_KEY: json.dumps(facts).encode(),
        _VIDEOS_KEY: json.dumps(of_videos).encode(),
        METADATA_KEY: BLANK,
    }
    table = pa.table(columns).replace_schema_metadata(metadata)
    return embed_seal(embed_checksum(pa.arrow_file(table)), seal, facts["key"])


def decode(data: bytes, key: str, seal: Seal = NO_KEY) -> tuple[dict[str, Embeddings], dict[str, Any]]:
    """Verify a file by its key, and read it; return its videos by key, and its facts.

    Raises:
        FrameFileError: The bytes are damaged or altered, were signed with another key, or belong under another key.
    """
    verify_seal(data, seal, key)
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        facts, of_videos = dict(json.loads(metadata[_FACTS_KEY])), json.loads(metadata[_VIDEOS_KEY])
        column = table["vector"].combine_chunks()
        values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(table), column.type.list_size)
        vectors, pts_ms = _restored(values), table["pts_ms"].to_numpy().astype(np.int64)
        ends = np.cumsum([int(each["frames"]) for each in of_videos]).tolist()
        if facts["key"] != key or ends[-1] != len(table):
            raise ValueError("it is inconsistent")
        videos = {
            str(each["key"]): Embeddings(
                vectors=vectors[end - each["frames"] : end],
                pts_ms=pts_ms[end - each["frames"] : end],
                first_ms=int(each["first_ms"]),
                duration_s=float(each["duration_s"]),
                note=str(each["note"]),
                cuts=Cuts.of_json(known) if (known := each["cuts"]) and known["finder"] == FINDER_VERSION else None,
            )
            for each, end in zip(of_videos, ends, strict=True)
        }
    except (pa.ArrowException, *_DAMAGE) as error:
        raise FrameFileError(f"The embedding file is damaged ({type(error).__name__}).") from None
    return videos, facts


def _restored(stored: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return stored vectors (N, D) at length 1, because rounding changes lengths in the fourth digit.

    Storing them again hardly changes any: lengths change by less than the distance between two float16 numbers, unless
    one component outweighs all others.
    """
    return normalize(stored.astype(np.float32))


def as_read_back(embeddings: Embeddings) -> Embeddings:
    """Return embeddings as read back from a file, so that the run that writes it gets the results of later ones."""
    return replace(embeddings, vectors=_restored(embeddings.vectors.astype(np.float16)))


@dataclass(slots=True)
class ShardVectors:
    """The videos in a shard's file by key, and those of this run. Thread-safe."""

    key: str
    found: Mapping[str, Embeddings] = field(default_factory=dict, repr=False)
    _used: dict[str, Embeddings] = field(default_factory=dict, init=False, repr=False)
    _frames: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def put(self, key: str, embeddings: Embeddings) -> None:
        """Add a video of this run, if there is room."""
        with self._lock:
            if key not in self._used and self._frames + len(embeddings.pts_ms) <= MOST_FRAMES:
                self._used[key] = embeddings
                self._frames += len(embeddings.pts_ms)

    def changed(self) -> dict[str, Embeddings] | None:
        """Return the file's new content; None if it is unchanged or should not be written."""
        is_new = any(self.found.get(key) is not embeddings for key, embeddings in self._used.items())
        return self._used if is_new and len(self._used) >= LEAST_VIDEOS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCache(SealedFiles):
    """Vector files under the root of the frame cache. Invalid ones are rebuilt."""

    def read(self, identity: VectorKey) -> Embeddings:
        """Read the vectors of a video.

        Raises:
            ObjectMissingError: There is no file.
            FrameFileError: It is damaged or altered, or does not match the request.
        """
        embeddings, facts = self._read_one(identity.key)
        if different := [name for name, value in identity.facts().items() if facts.get(name) != value]:
            raise FrameFileError(f"It does not match the request: {', '.join(different)} differ.")
        return embeddings

    def read_stored(self, key: str) -> tuple[Embeddings, ModelIdentity]:
        """Read the vectors of a video by the key of their file, and the model that it names.

        Raises:
            ObjectMissingError: There is no file.
            FrameFileError: It is damaged or altered, or belongs under another key.
        """
        embeddings, facts = self._read_one(key)
        try:
            return embeddings, ModelIdentity.model_validate(facts.get("model"))
        except ValidationError:
            raise FrameFileError("The embedding file does not name its model.") from None

    def _read_one(self, key: str) -> tuple[Embeddings, dict[str, Any]]:
        videos, facts = decode(self.objects.read(self.uri_of(key)), key, self.seal)
        embeddings = videos.get(key)
        if embeddings is None or facts.get("dimensions") != embeddings.vectors.shape[1]:
            raise FrameFileError("The embedding file is inconsistent: its video or its size is not the one it names.")
        return embeddings, facts

    def find(self, identity: VectorKey) -> Embeddings | None:
        """Look up the vectors of a video; return None if they are missing or invalid."""
        try:
            return self.read(identity)
        except (ObjectMissingError, FrameFileError):
            return None

    def write(self, identity: VectorKey, embeddings: Embeddings) -> str:
        """Write the vectors of a video, unless `find` accepts the existing file.

        Returns:
            Why an existing file was replaced; empty if there was none, or one that `find` accepts.

        Raises:
            ValueError: The size of the vectors is not the identity's.
        """
        if embeddings.vectors.shape[1] != identity.dimensions:
            raise ValueError(f"vectors of {embeddings.vectors.shape[1]} for a model of {identity.dimensions}")
        uri = self.uri_of(identity.key)
        data = encode({identity.key: embeddings}, identity.facts(), self.seal)
        if self.objects.write_new(uri, data):
            return ""
        try:
            self.read(identity)
        except FrameFileError as error:
            refused = error.message
        except ObjectMissingError:  # removed in the meantime
            refused = ""
        else:
            return ""
        self.objects.replace(uri, data)
        return refused

    def read_shard(self, key: str) -> ShardVectors:
        """Read the file of a shard; a missing or invalid one has no videos."""
        try:
            return ShardVectors(key, decode(self.objects.read(self.uri_of(key)), key, self.seal)[0])
        except (ObjectMissingError, FrameFileError):
            return ShardVectors(key)

    def write_shard(self, shard: ShardVectors) -> None:
        """Write the file of a shard, replacing an existing one, if its videos have changed."""
        if videos := shard.changed():
            self.objects.replace(self.uri_of(shard.key), encode(videos, {"key": shard.key}, self.seal))
