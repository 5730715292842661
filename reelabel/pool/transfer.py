"""Transfer of frames, and of a video's index, from a decoding process, in a sealed memory file.

The process copies the pixels into it once, seals it and sends its descriptor; the pool maps it. A sealed file can
neither shrink, which would kill the pool with SIGBUS, nor change after it was checked. It has no name, and is freed
with the last array that uses it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from reelabel.errors import InvalidReplyError
from reelabel.index import Crop, VideoIndex, VideoInfo
from reelabel.pool.messages import Codec, Frames, Index, Info, Table, clip
from reelabel.pool.wire import map_privately
from reelabel.sampled_frames import Orientation, SampledFrames
from reelabel.sampling.registry import DEFAULT_DENSE_SAMPLER
from reelabel.strategies.keyframe_table import KeyframeTable, describe_table, table_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from reelabel.pool.messages import Orienting, Request
    from reelabel.pool.reading import RangeReader
    from reelabel.strategies.keyframe_table import SavedIndex

    _Int64s = npt.NDArray[np.int64]

    from reelabel.sources.sparse_file import CachedRange


# NumPy arrays by name, as keyword arguments.
Arrays: TypeAlias = dict[str, Any]

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ALIGNMENT_BYTES = 8
_BLOCK_BYTES = 512
_SMALL_BYTES = 64 * 1024
_TABLE_COLUMNS = ("pts", "pos", "size", "frames_before")
_SCALARS = ({each.name for each in fields(Frames)} & {each.name for each in fields(SampledFrames)}) - {
    "orientation",
    "picks",
}


class Column(NamedTuple):
    """An array of the memory file; both sides know its type and shape from the message."""

    name: str
    dtype: type[np.generic]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Its length, without padding."""
        size = np.dtype(self.dtype).itemsize
        for side in self.shape:
            size *= side  # Python's integers do not overflow
        return size


def _columns(frames: Frames) -> Iterator[Column]:
    """Yield the arrays that follow each other in the memory file."""
    rows, picks = (frames.count,), (frames.picks,)
    yield Column("images", np.uint8, (frames.count, frames.height_px, frames.width_px, 3))
    yield Column("pts", np.int64, rows)
    yield Column("time_s", np.float64, rows)
    yield Column("frame_index", np.int64, rows)
    yield Column("is_keyframe", np.uint8, rows)
    yield Column("picks", np.int64, picks)
    if frames.has_deviations:
        yield Column("deviation_s", np.float64, picks)
    if frames.keyframes is not None:
        yield Column("keyframe_ms", np.int64, (frames.keyframes,))
    if frames.table:
        yield from (Column(f"table_{name}", np.int64, (frames.table.keyframes,)) for name in _TABLE_COLUMNS)


def _padding(size_bytes: int) -> int:
    return -size_bytes % _ALIGNMENT_BYTES


def pack_frames(got: SampledFrames, index: SavedIndex, request: Request) -> tuple[Frames, int]:
    """Write frames to a memory file, in a decoding process; return the message, and the descriptor of the sealed file.

    Raises:
        MemoryError: There is no room for it.
    """
    table = index if isinstance(index, KeyframeTable) and index is not request.known else None
    if table and not _is_table_sound(request.size_bytes, table.pts, table.pos, table.size, table.frames_before):
        table = None  # of a file that is cut short
    known = request.known if isinstance(request.known, tuple) else ()
    message = Frames(
        count=len(got.images),
        height_px=got.images.shape[1],
        width_px=got.images.shape[2],
        picks=len(got.picks),
        keyframes=None if got.keyframe_ms is None else len(got.keyframe_ms),
        has_deviations=got.deviation_s is not None,
        orientation=cast("Orienting", tuple(got.orientation)),
        reason=clip(got.reason),
        decode_ms=max(0.0, got.decode_ms),
        **{name: getattr(got, name) for name in _SCALARS - {"reason", "decode_ms"}},
        is_index_known=index is request.known,
        reads=0 if isinstance(index, KeyframeTable) else len(index) - len(known),
        table=_describe(table) if table else None,
    )
    columns = []
    for column in _columns(message):
        whole = table if column.name.startswith("table_") else got
        columns.append((column, getattr(whole, column.name.removeprefix("table_"))))
    return message, pack_columns(columns)


def pack_columns(columns: Iterable[tuple[Column, npt.NDArray[Any]]]) -> int:
    """Write arrays to a memory file, in a decoding process; return the descriptor of the sealed file.

    Raises:
        MemoryError: There is no room for it.
    """
    descriptor = os.memfd_create("frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for column, values in columns:
            _write(descriptor, np.ascontiguousarray(values, column.dtype))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise MemoryError from error
    return descriptor


def _describe(table: KeyframeTable) -> Table:
    described = describe_table(table)
    return Table(
        keyframes=len(table.pts),
        codec=Codec(**described["codec"]),
        info=Info(**described["info"]),
        orientation=cast("Orienting", tuple(described["orientation"])),
        frames=table.frames,
        missing_bytes=table.missing_bytes,
        brings_parameters=table.brings_parameters,
        is_order_proven=table.is_order_proven,
    )


def _write(descriptor: int, values: npt.NDArray[Any]) -> None:
    view = memoryview(values.tobytes()) if values.nbytes < _SMALL_BYTES else memoryview(cast("Any", values)).cast("B")
    while view:
        view = view[os.write(descriptor, view) :]
    os.write(descriptor, bytes(_padding(values.nbytes)))


def unpack_frames(message: Frames, descriptor: int, request: Request, *, max_bytes: int) -> Arrays:
    """Map the arrays of a memory file, in the pool, after checking all that could make using them fail.

    Raises:
        InvalidReplyError: The descriptor is not a sealed memory file of these arrays, or the arrays are inconsistent.
    """
    arrays = unpack_columns(list(_columns(message)), descriptor, max_bytes=max_bytes)
    _require_sound(arrays, request)
    return arrays


def unpack_columns(columns: Sequence[Column], descriptor: int, *, max_bytes: int) -> Arrays:
    """Map the arrays of a memory file, in the pool.

    Raises:
        InvalidReplyError: The descriptor is not a sealed memory file of these arrays.
    """
    size_bytes = sum(column.size_bytes + _padding(column.size_bytes) for column in columns)
    if size_bytes > max_bytes:
        raise InvalidReplyError(f"{size_bytes:,} bytes of arrays")
    _require_sealed(descriptor, size_bytes)
    memory = map_privately(descriptor, size_bytes) if size_bytes else b""
    arrays: Arrays = {}
    start = 0
    for column in columns:
        count = column.size_bytes // np.dtype(column.dtype).itemsize
        array = np.frombuffer(memory, column.dtype, count, start).reshape(column.shape)
        # The small ones are copied: one that is kept must not keep the pixels.
        arrays[column.name] = array if column.name == "images" else array.copy()
        start += column.size_bytes + _padding(column.size_bytes)
    return arrays


def _require_sealed(descriptor: int, size_bytes: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise InvalidReplyError("a descriptor of no memory file") from None
    facts = os.fstat(descriptor)
    if seals & _SEALS != _SEALS or facts.st_size != size_bytes:
        raise InvalidReplyError(f"a memory file of {facts.st_size:,} bytes with seals {seals}")
    # The process has paid for each page: none is a hole, which would be filled at the pool's cost, nor a huge page.
    if facts.st_blocks * _BLOCK_BYTES < size_bytes or os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        raise InvalidReplyError("a memory file with holes")


def _require_sound(arrays: Arrays, request: Request) -> None:
    count, picks = len(arrays["images"]), arrays["picks"]
    faults = {
        "picks": picks.min() < 0 or picks.max() != count - 1,
        "time_s": not np.isfinite(arrays["time_s"]).all() or (np.diff(arrays["time_s"]) < 0).any(),
        "frame_index": arrays["frame_index"].min() < -1,
        "is_keyframe": arrays["is_keyframe"].max() > 1,
        "deviation_s": "deviation_s" in arrays and not np.isfinite(arrays["deviation_s"]).all(),
        "keyframe_ms": "keyframe_ms" in arrays and (arrays["keyframe_ms"][1:] < arrays["keyframe_ms"][:-1]).any(),
        "table": "table_pos" in arrays
        and not _is_table_sound(request.size_bytes, *(arrays[f"table_{name}"] for name in _TABLE_COLUMNS)),
    }
    for name, is_wrong in faults.items():
        if is_wrong:
            raise InvalidReplyError(f"wrong values of {name}")


def _is_table_sound(size_bytes: int, pts: _Int64s, pos: _Int64s, size: _Int64s, frames_before: _Int64s) -> bool:
    is_inside = (pos >= 0) & (pos <= size_bytes) & (size >= 1) & (size <= size_bytes - pos)
    return bool((pts[1:] > pts[:-1]).all() and is_inside.all() and (frames_before >= -1).all())


def sampled_frames(
    message: Frames,
    arrays: Arrays,
    request: Request,
    **fetched: Any,  # noqa: ANN401
) -> SampledFrames:
    """Assemble frames from a message and its arrays, in the pool.

    Raises:
        InvalidReplyError: They are not frames of the request.
    """
    samplers = {request.sampling.sampler}
    if request.sampling.sampler == "auto":
        samplers = {"keyframes", request.sampling.dense_sampler or DEFAULT_DENSE_SAMPLER}
    if message.sampler not in samplers:
        raise InvalidReplyError("frames of another sampler")
    try:
        return SampledFrames(
            **{name: array for name, array in arrays.items() if not name.startswith("table_")}
            | {"is_keyframe": arrays["is_keyframe"].view(np.bool_)},
            **{name: getattr(message, name) for name in _SCALARS},
            orientation=Orientation(*message.orientation),
            segment=request.segment,
            **fetched,
        )
    except ValueError as error:
        raise InvalidReplyError(str(error)) from None


def with_ranges(
    message: Frames, arrays: Arrays, request: Request, reader: RangeReader
) -> tuple[SampledFrames, SavedIndex]:
    """Assemble frames of a video that was read in ranges, and its index, in the pool.

    Raises:
        InvalidReplyError: They are not those of the request.
    """
    known = request.known or ()
    got = sampled_frames(
        message,
        arrays,
        request,
        fetch_ms=reader.wait_s * 1e3,
        bytes_fetched=reader.bytes_fetched,
        parts=reader.index(known, len(reader.extents)),
    )
    if message.is_index_known:
        return got, known
    return got, _keyframe_table(message.table, arrays) if message.table else reader.index(known, message.reads)


def _keyframe_table(table: Table, arrays: Arrays) -> KeyframeTable:
    """Assemble a keyframe table from a message and its arrays, in the pool.

    Raises:
        InvalidReplyError: It is none.
    """
    try:
        described = table.to_dict()
        del described["keyframes"]
        arguments = table_arguments(described)
    except ValueError as error:
        raise InvalidReplyError(str(error)) from None
    return KeyframeTable(**{name: arrays[f"table_{name}"] for name in _TABLE_COLUMNS}, **arguments)


_PLAIN = (
    *("lists", "keyframes", "first_s", "last_s", "total_frames"),
    *("is_whole", "is_start_known", "is_order_proven"),
)
_FLAGS = ("is_keyframe", "is_shown")


def pack_info(info: VideoInfo) -> Info:
    """Write what a header states to a message."""
    plain = {each.name: getattr(info, each.name) for each in fields(Info)}
    texts = {"container": clip(info.container), "codec": clip(info.codec), "time_base": str(info.time_base)}
    return Info(**plain | texts | {"crop": tuple(info.crop)})


def unpack_info(message: Info) -> VideoInfo:
    """Read what a header states from a message."""
    return VideoInfo(**message.to_dict() | {"time_base": Fraction(message.time_base), "crop": Crop(*message.crop)})


def _index_columns(message: Index) -> Iterator[Column]:
    rows, shown = (message.rows,), (message.shown,)
    yield from (Column(name, np.int64, rows) for name in ("pts", "pos", "size"))
    yield from (Column(name, np.int64, shown) for name in ("order", "position"))
    if message.has_times:
        yield Column("time_s", np.float64, shown)
    if message.is_listed:
        yield Column("keyframe_s", np.float64, (message.keyframes,))
    yield from (Column(name, np.uint8, rows) for name in _FLAGS)


def pack_index(index: VideoIndex, ranges: Sequence[CachedRange], request: Request) -> tuple[Index, int]:
    """Write an index to a message and a memory file, in a decoding process.

    Raises:
        MemoryError: There is no room for the file.
    """
    known = request.known if isinstance(request.known, tuple) else ()
    message = Index(
        **{name: getattr(index, name) for name in _PLAIN},
        info=pack_info(index.info),
        source="packets" if index.kind == "packets" else "container",
        rows=len(index.pts),
        shown=len(index.order),
        has_times=index.time_s is not None,
        is_listed=index.is_listed,
        doubt=clip(index.doubt),
        note=clip(index.note),
        reads=max(0, len(ranges) - len(known)),
    )
    return message, pack_columns((column, getattr(index, column.name)) for column in _index_columns(message))


def unpack_index(message: Index | Frames, descriptor: int, *, max_bytes: int) -> VideoIndex:
    """Assemble an index from a message and its memory file, in the pool.

    Raises:
        InvalidReplyError: It is none, or contradicts itself.
    """
    if not isinstance(message, Index):
        raise InvalidReplyError("frames instead of an index")
    arrays = unpack_columns(list(_index_columns(message)), descriptor, max_bytes=max_bytes)
    for name in _FLAGS:
        if arrays[name].max(initial=0) > 1:
            raise InvalidReplyError(f"wrong values of {name}")
        arrays[name] = arrays[name].view(np.bool_)
    try:
        return VideoIndex(
            **{name: getattr(message, name) for name in (*_PLAIN, "doubt", "note")},
            **arrays,
            info=unpack_info(message.info),
            kind=message.source,
        )
    except ValueError as error:
        raise InvalidReplyError(str(error)) from None
