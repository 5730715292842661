"""The header file: those bytes of a remote video that tell where its keyframes are.

One Arrow IPC file, compressed, one row per extent: `start`, `data`. With it, another sampler or
another number of frames reads nothing but the frames themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from infra.errors import FrameFileError
from tasks.frames.seal import BLANK_SEAL, SEAL_KEY, check_seal, seal
from tasks.video.ranges import Extent

if TYPE_CHECKING:
    from collections.abc import Sequence


def encode_header(extents: Sequence[Extent]) -> bytes:
    """Write extents as Arrow IPC."""
    columns = {
        "start": pa.array([extent.start for extent in extents], pa.int64()),
        "data": pa.array([extent.data for extent in extents], pa.large_binary()),
    }
    table = pa.table(columns).replace_schema_metadata({SEAL_KEY: BLANK_SEAL})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return seal(sink.getvalue().to_pybytes())


def decode_header(data: bytes) -> tuple[Extent, ...]:
    """Read extents.

    Raises:
        FrameFileError: The bytes are not a header file, or are damaged.
    """
    check_seal(data)
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        return tuple(map(Extent, table["start"].to_pylist(), table["data"].to_pylist()))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FrameFileError(f"The header file is damaged ({type(error).__name__}).") from None
