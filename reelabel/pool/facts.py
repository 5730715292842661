"""Transfer of what a video's index tells from a decoding process, as `reelabel.pool.transfer` does for frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import InvalidAnswerError
from reelabel.index_facts import IndexFacts
from reelabel.pool.messages import Facts, clip
from reelabel.pool.transfer import Column, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.pool.messages import Frames, Packets, Request
    from reelabel.sources.sparse_file import CachedRange

_PLAIN = ("width_px", "height_px", "hdr", "fps", "duration_s", "frames", "listed", "first_ms")


def _columns(message: Facts) -> Iterator[Column]:
    if message.keyframes is not None:
        yield Column("times_ms", np.int64, (message.keyframes,))
        if message.has_sizes:
            yield Column("sizes_bytes", np.int64, (message.keyframes,))


def pack_facts(facts: IndexFacts, index: Sequence[CachedRange], request: Request) -> tuple[Facts, int]:
    """Write facts to a message and a memory file, in a decoding process.

    Raises:
        MemoryError: There is no room for the file.
    """
    known = request.known if isinstance(request.known, tuple) else ()
    message = Facts(
        **{name: getattr(facts, name) for name in _PLAIN},
        container=clip(facts.container),
        codec=clip(facts.codec),
        note=clip(facts.note),
        keyframes=facts.keyframes,
        has_sizes=facts.sizes_bytes is not None,
        reads=max(0, len(index) - len(known)),
    )
    return message, pack_columns((column, getattr(facts, column.name)) for column in _columns(message))


def unpack_facts(message: Facts | Frames | Packets, descriptor: int, *, max_bytes: int) -> IndexFacts:
    """Assemble facts from a message and its memory file, in the pool.

    Raises:
        InvalidAnswerError: They are no facts, or contradict each other.
    """
    if not isinstance(message, Facts):
        raise InvalidAnswerError("frames instead of facts")
    arrays = unpack_columns(list(_columns(message)), descriptor, max_bytes=max_bytes)
    times, sizes = arrays.get("times_ms"), arrays.get("sizes_bytes")
    if (times is None) != (message.listed == "not") or (times is not None and not times.size):
        raise InvalidAnswerError("keyframes that are not listed")
    if times is not None and (times[1:] < times[:-1]).any():
        raise InvalidAnswerError("wrong values of times_ms")
    if sizes is not None and (sizes < 0).any():
        raise InvalidAnswerError("wrong values of sizes_bytes")
    plain = {name: getattr(message, name) for name in (*_PLAIN, "container", "codec", "note")}
    return IndexFacts(**plain, **arrays)
