"""Making a keyframe table of a file that was just read by its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasks.video.keyframes import UNKNOWN_POSITION
from tasks.video.listing import tabled_pts
from tasks.video.table import KeyframeTable
from tasks.video.wholeness import missing_bytes

if TYPE_CHECKING:
    from tasks.video.keyframes import Keyframes
    from tasks.video.ranges import SparseFile
    from tasks.video.reader import KeyframeReader
    from tasks.video.stream import StreamFacts


def tabulate(reader: KeyframeReader, got: Keyframes, *, stream: StreamFacts, file: SparseFile) -> KeyframeTable | None:
    """List all keyframes with their presentation times; None where the header does not tell them.

    They are reckoned from the header's tables, and held against those that were demuxed.

    Args:
        reader: What read the keyframes.
        got: The keyframes that it read.
        stream: Their stream.
        file: Their file, whose header is known.
    """
    index, codec = reader.index, reader.codec
    pts = tabled_pts(reader, file, file.size_bytes)
    if codec is None or index.frames is None or pts is None or not reader.begins_with_keyframe:
        return None  # by a table, the first keyframe is taken for the first frame
    numbers, _, pos, size = np.array(index.keyframes, np.int64).T
    if any(pts[number] != known for number, known in reader.demuxed.items()) or (np.diff(pts) <= 0).any():
        return None
    hidden = reader.hidden_before
    return KeyframeTable(
        codec=codec,
        stream=stream,
        orientation=got.orientation,
        pts=pts,
        pos=pos,
        size=size,
        frames_before=np.full(len(pts), UNKNOWN_POSITION) if hidden is None else numbers - hidden,
        frames=index.frames,
        missing_bytes=missing_bytes(file, file.size_bytes),
    )
