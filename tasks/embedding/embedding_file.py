"""The embedding file: an Arrow IPC file with one row per frame, beside the frame files and sealed as they are.

Columns: `pts_ms` (int64) and `vector` (a fixed-size list of float16, or of float32). The schema metadata holds all that
the file was asked for by as JSON under `reelabel`, the video's length and a note under `video`, and its checksum and
seal under `seal`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import ValidationError

from reelabel import arrow as pa
from reelabel.digest import json_digest
from reelabel.errors import FrameFileError, ObjectMissingError
from reelabel.frames.cache_key import decoder_versions
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK, METADATA_KEY, NO_KEY, embed_checksum, embed_seal, verify_seal
from reelabel.segment import WHOLE
from reelabel.sources.object_info import redact_uri, unsigned_uri
from tasks.description.embeddings import Embeddings, normalize
from tasks.domain import ModelIdentity
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.seal import Seal
    from reelabel.segment import Segment

Precision = Literal["float16", "float32"]
# Half the bytes; what it costs is held by a test: a cosine of at least 0.999999 with the vector that was embedded.
DEFAULT_PRECISION: Precision = "float16"

_SCHEMA_VERSION = 1
_FACTS_KEY, _VIDEO_KEY = b"reelabel", b"video"
_OF_A_VIDEO = ("source_uri", "fingerprint", "segment_s")
_TYPES = {"float16": np.float16, "float32": np.float32}


@lru_cache(maxsize=64)
def _as_json(options: ModelIdentity | Sampling) -> dict[str, Any]:
    # Cached, as it takes longer than hashing the key, and is the same for all videos of a run.
    return options.to_dict() if isinstance(options, Sampling) else options.model_dump(mode="json")


@dataclass(frozen=True, kw_only=True)
class EmbeddingIdentity:
    """Everything that determines the embeddings of one video.

    Attributes:
        source_uri: URI of the video.
        fingerprint: Version of the video.
        sampling: Which frames, and at what size; for describe, also how many a chunk.
        segment: The part of the video that is sampled.
        model: The model, its revision or the fingerprint of its folder.
        dimensions: Size of a vector.
        size_px: Side of the square that frames are resized to, or of one of as many pixels.
        versions: Versions of the packages that embed.
        chunk_s: Length of the chunks that frames were chosen by; None if they do not depend on chunks.
        precision: How vectors are stored.
    """

    source_uri: str = field(repr=False)  # may contain a signature, or a whole video
    fingerprint: str
    sampling: Sampling
    segment: Segment = WHOLE
    model: ModelIdentity
    dimensions: int
    size_px: int
    versions: dict[str, str]
    chunk_s: float | None = None
    precision: Precision = DEFAULT_PRECISION

    @cached_property
    def key(self) -> str:
        """The file's key, a path relative to the cache's root: `v1/ab/abcdef....vectors`."""
        digest = json_digest({"kind": "embeddings", **self._values})
        return f"v{_SCHEMA_VERSION}/{digest[:2]}/{digest}.vectors"

    def facts(self) -> dict[str, Any]:
        """Return what the file holds of it, as JSON values: no embedded video, and no signed query."""
        return self._values | {"key": self.key, "source_uri": redact_uri(self._values["source_uri"])}

    @property
    def shared(self) -> dict[str, Any]:
        """What it has in common with those of other videos that are asked for in the same way, as JSON values."""
        return {name: value for name, value in self._values.items() if name not in _OF_A_VIDEO}

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
            "precision": self.precision,
            "versions": {**decoder_versions(), **self.versions},
        }


def encode_embeddings(embeddings: Embeddings, identity: EmbeddingIdentity, seal: Seal = NO_KEY) -> bytes:
    """Return the bytes of an embedding file.

    Raises:
        ValueError: The vectors are not of the identity's size.
    """
    count, size = embeddings.vectors.shape
    if size != identity.dimensions:
        raise ValueError(f"vectors of {size} for a model of {identity.dimensions}")
    flat = pa.array(_stored(embeddings.vectors, identity.precision).reshape(count * size))
    columns = {
        "pts_ms": pa.array(embeddings.pts_ms, pa.int64()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, size),
    }
    video = {"first_ms": embeddings.first_ms, "duration_s": embeddings.duration_s, "note": embeddings.note}
    metadata = {
        _FACTS_KEY: json.dumps(identity.facts()).encode(),
        _VIDEO_KEY: json.dumps(video).encode(),
        METADATA_KEY: BLANK,
    }
    table = pa.table(columns).replace_schema_metadata(metadata)
    return embed_seal(embed_checksum(pa.arrow_file(table)), seal, identity.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEmbeddings:
    """What an embedding file holds, for who knows only its key.

    Attributes:
        embeddings: Of the video's frames.
        model: Whose vectors they are.
    """

    embeddings: Embeddings
    model: ModelIdentity


def decode_embeddings(data: bytes, identity: EmbeddingIdentity, seal: Seal = NO_KEY) -> Embeddings:
    """Verify an embedding file, and that it is the one asked for, and read it.

    Raises:
        FrameFileError: The bytes are damaged or altered, were sealed with another key, or are of something else.
    """
    embeddings, facts = _decode(data, identity.key, seal)
    if different := [name for name, value in identity.facts().items() if facts.get(name) != value]:
        raise FrameFileError(f"It was made for something else: {', '.join(different)} differ from what is asked for.")
    return embeddings


def decode_stored(data: bytes, key: str, seal: Seal = NO_KEY) -> StoredEmbeddings:
    """Verify an embedding file by its key alone, and read it; whose vectors they are is what the file says.

    Raises:
        FrameFileError: The bytes are damaged or altered, were sealed with another key, or belong under another key.
    """
    embeddings, facts = _decode(data, key, seal)
    if facts.get("key") != key or facts.get("dimensions") != embeddings.vectors.shape[1]:
        raise FrameFileError("The embedding file contradicts itself: it is not of the key or the size that it names.")
    try:
        return StoredEmbeddings(embeddings=embeddings, model=ModelIdentity.model_validate(facts.get("model")))
    except ValidationError:
        raise FrameFileError("The embedding file does not say whose vectors it holds.") from None


def _decode(data: bytes, key: str, seal: Seal) -> tuple[Embeddings, dict[str, Any]]:
    verify_seal(data, seal, key)
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        facts, video = dict(json.loads(metadata[_FACTS_KEY])), json.loads(metadata[_VIDEO_KEY])
        embeddings = Embeddings(
            vectors=_read_vectors(table),
            pts_ms=table["pts_ms"].to_numpy().astype(np.int64),
            first_ms=int(video["first_ms"]),
            duration_s=float(video["duration_s"]),
            note=str(video["note"]),
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise FrameFileError(f"The embedding file is damaged ({type(error).__name__}).") from None
    return embeddings, facts


def _read_vectors(table: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401 - pyarrow
    column = table["vector"].combine_chunks()
    values = column.flatten().to_numpy(zero_copy_only=False)
    return restored(values.reshape(len(table), column.type.list_size))


def _stored(vectors: npt.NDArray[np.float32], precision: Precision) -> npt.NDArray[np.floating]:
    return vectors.astype(_TYPES[precision])


def restored(stored: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return stored vectors (N, D) at length 1, as rounding changes lengths in the fourth digit.

    Stored again, hardly any is rounded again: lengths change by less than the distance of two numbers, unless one
    component outweighs all others.
    """
    return normalize(stored.astype(np.float32))


def as_read_back(embeddings: Embeddings, precision: Precision) -> Embeddings:
    """Return embeddings as they are read back from a file, so that the run that makes it says what later ones say."""
    return replace(embeddings, vectors=restored(_stored(embeddings.vectors, precision)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCache(SealedFiles):
    """Embedding files under the root of the frame cache; what must not be used is made again, and why is told."""

    def read(self, identity: EmbeddingIdentity) -> Embeddings:
        """Read a file.

        Raises:
            ObjectMissingError: It does not exist.
            FrameFileError: It is damaged or altered, or is not the one asked for.
        """
        return decode_embeddings(self.objects.read(self.uri_of(identity.key)), identity, self.seal)

    def read_stored(self, key: str) -> StoredEmbeddings:
        """Read a file by its key alone.

        Raises:
            ObjectMissingError: It does not exist.
            FrameFileError: It is damaged or altered, or belongs under another key.
        """
        return decode_stored(self.objects.read(self.uri_of(key)), key, self.seal)

    def find(self, identity: EmbeddingIdentity) -> Embeddings | None:
        """Look up a file; return None if it is missing or must not be used, and must be made."""
        try:
            return self.read(identity)
        except (ObjectMissingError, FrameFileError):
            return None

    def write(self, identity: EmbeddingIdentity, embeddings: Embeddings) -> str:
        """Write a file, unless there is one that `find` accepts.

        Returns:
            Why the file that was there was replaced; empty if there was none, or one that `find` accepts.
        """
        uri, data = self.uri_of(identity.key), encode_embeddings(embeddings, identity, self.seal)
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
