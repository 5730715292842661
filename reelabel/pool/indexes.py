"""Transfer of a video's index from a decoding process, as `reelabel.pool.transfer` does for frames."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import InvalidAnswerError
from reelabel.index import Crop, VideoIndex, VideoInfo
from reelabel.pool.messages import Index, Info, clip
from reelabel.pool.transfer import Column, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.pool.messages import Frames, Request
    from reelabel.sources.sparse_file import CachedRange

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


def _columns(message: Index) -> Iterator[Column]:
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
    return message, pack_columns((column, getattr(index, column.name)) for column in _columns(message))


def unpack_index(message: Index | Frames, descriptor: int, *, max_bytes: int) -> VideoIndex:
    """Assemble an index from a message and its memory file, in the pool.

    Raises:
        InvalidAnswerError: It is none, or contradicts itself.
    """
    if not isinstance(message, Index):
        raise InvalidAnswerError("frames instead of an index")
    arrays = unpack_columns(list(_columns(message)), descriptor, max_bytes=max_bytes)
    for name in _FLAGS:
        if arrays[name].max(initial=0) > 1:
            raise InvalidAnswerError(f"wrong values of {name}")
        arrays[name] = arrays[name].view(np.bool_)
    try:
        return VideoIndex(
            **{name: getattr(message, name) for name in (*_PLAIN, "doubt", "note")},
            **arrays,
            info=unpack_info(message.info),
            kind=message.source,
        )
    except ValueError as error:
        raise InvalidAnswerError(str(error)) from None
