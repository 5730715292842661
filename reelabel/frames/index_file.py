"""The index file: the locations of a remote video's keyframes.

A compressed Arrow IPC file. For an MP4, it has one row per keyframe (`pts`, `pos`, `size`, `frames_before`), and the
decoder's parameters as JSON under `stream` in the schema metadata. For other containers, it has the bytes of the
file's own index, one row per extent (`start`, `data`). With an index file, extracting other frames of the same video
reads only their packets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reelabel import arrow as pa
from reelabel.decode.keyframe_table import KeyframeTable, describe_table, table_arguments
from reelabel.errors import FrameFileError
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from reelabel.decode.keyframe_table import SavedIndex

_STREAM_KEY = b"stream"
_COLUMNS = ("pts", "pos", "size", "frames_before")


def encode_index(index: SavedIndex) -> bytes:
    """Encode a keyframe table, or extents, as an index file, which the cache seals."""
    if isinstance(index, KeyframeTable):
        columns = {name: pa.array(getattr(index, name)) for name in _COLUMNS}
        metadata = {_STREAM_KEY: json.dumps(describe_table(index)).encode()}
    else:
        columns = {
            "start": pa.array([extent.start for extent in index], pa.int64()),
            "data": pa.array([extent.data for extent in index], pa.large_binary()),
        }
        metadata = {}
    table = pa.table(columns).replace_schema_metadata(metadata)
    return pa.arrow_file(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_index(data: bytes | memoryview) -> SavedIndex:
    """Decode an index file whose seal is verified.

    Raises:
        FrameFileError: The bytes are damaged, or not an index file.
    """
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        metadata = table.schema.metadata or {}
        if _STREAM_KEY not in metadata:
            return tuple(map(CachedRange, table["start"].to_pylist(), table["data"].to_pylist()))
        columns = {name: table[name].to_numpy() for name in _COLUMNS}
        return KeyframeTable(**columns, **table_arguments(json.loads(metadata[_STREAM_KEY])))
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise FrameFileError(f"The index file is damaged ({type(error).__name__}).") from None
