"""The frame file: an Arrow IPC file with one row per unique frame.

Columns: `pixels`, `pts`, `time_s`, `frame_index`, `is_keyframe`. The schema metadata holds everything else as JSON
under `reelabel`: the pixel encoding, what is known of the video, and all that the file was asked for by; and under
`seal` a checksum of the whole file, and its seal.
"""

from __future__ import annotations

import json
from functools import cache, partial
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel import arrow as pa
from reelabel.errors import FallbackRequired, FrameFileError
from reelabel.frames.pixels import Encoding, LosslessEncoding, decode_pixels, encode_pixels, write_options
from reelabel.frames.sparse import SparseVideo, hash_of
from reelabel.index import NO_PTS, UNKNOWN_POSITION
from reelabel.options import Limits, read_options
from reelabel.records import arrays_of, from_json, to_json
from reelabel.result import Frames, Selection
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK, METADATA_KEY, Seal, embed_checksum, verify_checksum, verify_seal
from reelabel.sources.object_info import SCHEMA_VERSION
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.frames.cache_key import FrameIdentity
    from reelabel.pool.decode_pool import DecodePool

_METADATA_KEY = b"reelabel"
_COLUMNS = ("pts", "time_s", "frame_index", "is_keyframe")
_NULLS = {"pts": NO_PTS, "frame_index": UNKNOWN_POSITION}
_DAMAGE = (OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
_DEFAULT_LIMITS = Limits()


def write_frames(
    frames: Frames, identity: FrameIdentity, *, encoding: LosslessEncoding = "zstd", encoding_note: str = ""
) -> bytes:
    """Return the bytes of a frame file of at least one frame.

    Pixels are stored as JPEG if the sampling of the identity has a `jpeg_quality`, else in `encoding`; `encoding_note`
    says why another that was asked for was not used.

    Raises ConfigurationError if PyArrow is not installed, and VideoTooLargeError if a frame is too large for JPEG.
    """
    quality = identity.sampling.jpeg_quality
    used: Encoding = "jpeg" if quality else encoding
    pixels = encode_pixels(frames.unique, used, jpeg_quality=quality)
    return _write(frames, identity, pixels, encoding=used, encoding_note=encoding_note)


def write_sparse(frames: Frames, identity: FrameIdentity, video: SparseVideo) -> bytes:
    """Return the bytes of a frame file with the ranges of the video that the frames are decoded from."""
    data = b"".join(each.data for each in video.ranges)
    pixels = pa.array([data, *[b""] * (frames.shape[0] - 1)], pa.large_binary())
    described = {
        "size_bytes": video.size_bytes,
        "ranges": [[each.start, len(each.data)] for each in video.ranges],
        "pixels": hash_of(frames.unique),
    }
    return _write(frames, identity, pixels, encoding="sparse", encoding_note="", sparse=described)


def _write(frames: Frames, identity: FrameIdentity, pixels: Any, **more: Any) -> bytes:  # noqa: ANN401 - of Arrow, JSON
    if not len(frames):
        raise ValueError("There is no frame to write.")
    plain, arrays = to_json(frames.selection)
    metadata = {
        **identity.facts(),
        **more,
        "made_by": f"reelabel {version('reelabel')}",
        "shape": list(frames.shape),
        "frames": plain,
        "arrays": {name: array.tolist() for name, array in arrays.items() if name not in _COLUMNS},
    }
    columns = {"pixels": pixels}
    for name in _COLUMNS:
        mask = arrays[name] == _NULLS[name] if name in _NULLS else None
        columns[name] = pa.array(arrays[name], mask=mask)
    return _encode(columns, metadata)


def _encode(columns: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    table = pa.table(columns).replace_schema_metadata(
        {_METADATA_KEY: json.dumps(metadata).encode(), METADATA_KEY: BLANK}
    )
    return embed_checksum(pa.arrow_file(table, options=write_options(metadata["encoding"])))


def read_frames(source: Path | str | bytes, *, pool: DecodePool | None = None) -> Frames:
    """Read the frames of a frame file, given its path or its bytes. Pixels are decoded when they are first used.

    The file does not hold the container and the codec, which are empty in `info`. The `pool` decodes a file that stores
    ranges of the video instead of pixels; others need none.

    Raises OSError, and FrameFileError if the file is damaged, or of another version.
    """
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    verify_checksum(data)
    return load_frames(data, pool=pool)


def load_frames(data: bytes, *, pool: DecodePool | None = None, limits: Limits = _DEFAULT_LIMITS) -> Frames:
    metadata = read_metadata(data)
    try:
        columns = _read_columns(data)
        known = {name: columns[name].fill_null(null) for name, null in _NULLS.items()}
        stored = {name: column.to_numpy(zero_copy_only=False) for name, column in (columns | known).items()}
        arrays = {name: _column(name, values) for name, values in (stored | metadata["arrays"]).items()}
        selection = from_json(metadata["frames"], Selection, arrays)
        pixels = cache(partial(_read_pixels, data, metadata, selection, pool, limits))
        shape, source_uri = tuple(metadata["shape"]), str(metadata["source_uri"])
        frames = Frames(selection=selection, pixels=pixels, shape=shape, source_uri=source_uri)
        if not len(frames) or min(shape) < 1:
            raise ValueError("no frame")
    except (pa.ArrowException, *_DAMAGE) as error:
        raise _damaged(error) from None
    return frames


def with_pixels(data: bytes, pool: DecodePool, limits: Limits) -> bytes:
    """Return a frame file that stores pixels: the same one, unless it stores ranges of the video."""
    if not is_sparse(data):
        return data
    pixels = encode_pixels(load_frames(data, pool=pool, limits=limits).unique, "raw")
    columns = {"pixels": pixels, **_read_columns(data)}
    return _encode(columns, read_metadata(data) | {"encoding": "raw", "sparse": None})


def is_sparse(data: bytes) -> bool:
    """Return whether a frame file stores ranges of its video, so that a decoding process is needed to read it."""
    return bool(read_metadata(data)["encoding"] == "sparse")


def read_metadata(data: bytes) -> dict[str, Any]:
    """Read the metadata of a frame file whose seal or checksum is verified; raise FrameFileError if it is invalid."""
    try:
        schema = _open(data).schema
        metadata: dict[str, Any] = json.loads((schema.metadata or {})[_METADATA_KEY])
        schema_version, _ = metadata["schema"], metadata["encoding"]
    except (pa.ArrowException, *_DAMAGE) as error:
        raise _damaged(error) from None
    if schema_version != SCHEMA_VERSION:
        writer = "an older version" if schema_version in range(SCHEMA_VERSION) else "another version"
        raise FrameFileError(
            f"It was recorded by {writer} of Reelabel (schema {schema_version}, not {SCHEMA_VERSION})."
        )
    return metadata


def verify_sealed(data: bytes, identity: FrameIdentity, seal: Seal) -> None:
    """Raise FrameFileError unless a frame file is intact, sealed with this key, and the one asked for."""
    verify_seal(data, seal, identity.key)
    if different := identity.differences(read_metadata(data)):
        raise FrameFileError(f"It was made for something else: {', '.join(different)} differ from what is asked for.")


def _read_pixels(
    data: bytes, metadata: dict[str, Any], selection: Selection, pool: DecodePool | None, limits: Limits
) -> npt.NDArray[np.uint8]:
    try:
        column, shape = _open(data).read_all()["pixels"].chunk(0), tuple(metadata["shape"])
        if metadata["encoding"] != "sparse":
            return decode_pixels(column, metadata["encoding"], shape)
        if pool is None:
            raise FrameFileError(
                "The frame file stores ranges of its video instead of pixels; pass a DecodePool that decodes them."
            )
        stored = metadata["sparse"]
        sampling = read_options(Sampling, metadata["sampling"])
        video = SparseVideo(int(stored["size_bytes"]), _cut_ranges(column[0].as_py(), stored["ranges"]))
        images = video.decode(pool, sampling=sampling, segment=selection.segment, limits=limits)
        if images.shape != shape or hash_of(images) != stored["pixels"]:
            raise ValueError("the stored ranges decode to other pixels")
    except FallbackRequired as error:
        raise FrameFileError(f"The frame file's ranges cannot be decoded ({error}).") from None
    except (pa.ArrowException, *_DAMAGE) as error:
        raise _damaged(error) from None
    images.flags.writeable = False
    return images


def _column(name: str, values: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - whatever a file holds
    column = np.array(values, arrays_of(Selection)[name])
    if column.ndim != 1 or not np.isfinite(column).all():
        raise ValueError(f"{name} of {column.ndim} dimensions, or not finite")
    return column


def _cut_ranges(data: bytes, ranges: list[list[int]]) -> tuple[CachedRange, ...]:
    ends = [*accumulate(size for _, size in ranges)]
    if min((size for _, size in ranges), default=0) < 1 or ends[-1] != len(data):
        raise ValueError("ranges of other sizes")
    return tuple(CachedRange(start, data[end - size : end]) for (start, size), end in zip(ranges, ends, strict=True))


def _read_columns(data: bytes) -> dict[str, Any]:
    schema = _open(data).schema
    table = _open(data, included_fields=[schema.names.index(name) for name in _COLUMNS]).read_all()
    return {name: table[name].chunk(0) for name in _COLUMNS}


def _open(data: bytes, **options: Any) -> Any:  # noqa: ANN401 - of Arrow
    # Only the pixel column is large: threads for the others cost more than they save.
    return pa.ipc.open_file(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(use_threads=False, **options))


def _damaged(error: Exception) -> FrameFileError:
    return FrameFileError(f"The frame file is damaged ({type(error).__name__}).")
