"""Frame files of frames that tests have made up or decoded, and the same ones altered."""

from typing import get_args

import numpy as np
import pyarrow as pa

from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import read_metadata, write_frames
from reelabel.frames.pixels import LosslessEncoding
from reelabel.result import Orientation, Selection
from reelabel.sampling.options import Sampling
from reelabel.seal import BLANK, METADATA_KEY, embed_checksum

LOSSLESS = get_args(LosslessEncoding)


def selection_of(count, **changed):
    """Select all frames of a video that has only keyframes, one a second."""
    facts = {
        "pts": np.arange(count),
        "time_s": np.arange(count, dtype=np.float64),
        "frame_index": np.arange(count),
        "is_keyframe": np.ones(count, bool),
        "picks": np.arange(count),
        "keyframes_in_file": count,
        "total_frames": count,
        "fps": 1.0,
        "duration_s": float(count),
        "native_width_px": 56,
        "native_height_px": 56,
        "orientation": Orientation(),
        "method": "seek",
        "note": "",
        "decode_ms": 1.0,
    }
    return Selection(**facts | changed)


def frame_file_of(sampled, *, source_uri="v", fingerprint="e", sampling=None, encoding="zstd"):
    """Return the bytes of the frame file of some `Frames`."""
    identity = FrameIdentity(
        source_uri=source_uri,
        fingerprint=fingerprint,
        sampling=sampling or Sampling(),
        segment=sampled.selection.segment,
    )
    return write_frames(sampled, identity, encoding=encoding)


def encoding_of(data):
    """Return how a frame file stores pixels."""
    return read_metadata(data)["encoding"]


def with_pixel_rows(data, change):
    """Return a frame file with what `change` makes of the rows of its pixel column."""
    table = pa.ipc.open_file(data).read_all()
    column = table["pixels"].chunk(0)
    table = table.set_column(0, table.schema.field(0), pa.array(change(column.to_pylist()), column.type))
    schema = table.schema.with_metadata({**table.schema.metadata, METADATA_KEY: BLANK})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return embed_checksum(sink.getvalue().to_pybytes())


def reversed_frames(data):
    """Return a frame file with the pixels of its frames in the opposite order."""
    return with_pixel_rows(data, lambda rows: rows[::-1])
