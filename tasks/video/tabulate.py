"""Build a keyframe table after reading a file by its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tasks.video.keyframes import UNKNOWN_POSITION
from tasks.video.listing import sample_table_pts
from tasks.video.table import KeyframeTable
from tasks.video.wholeness import missing_bytes

if TYPE_CHECKING:
    from tasks.video.keyframes import SampledFrames
    from tasks.video.ranges import SparseFile
    from tasks.video.reader import KeyframeReader
    from tasks.video.stream import StreamProperties


def build_keyframe_table(
    reader: KeyframeReader, got: SampledFrames, *, stream: StreamProperties, file: SparseFile
) -> KeyframeTable | None:
    """Build the table of all keyframes, or return None if the header is not sufficient.

    PTS are computed from the sample tables, and checked against those of the demuxed packets.

    Args:
        reader: The keyframe reader that was used.
        got: The frames extracted with it.
        stream: Properties of the stream.
        file: The file, whose header is cached.
    """
    index, codec = reader.index, reader.codec
    pts = sample_table_pts(reader, file, file.size_bytes)
    if codec is None or index.frames is None or pts is None or not reader.begins_with_keyframe:
        return None  # a table implies that the first keyframe is the first frame
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
