"""The frame file: one Arrow IPC file, one row per unique frame.

Columns: `pixels` (fixed-size binary, H*W*3 bytes of RGB, uncompressed so that reading copies
nothing), `pts`, `time_s`, `frame_index`, `is_keyframe`. The schema's metadata holds everything else
as JSON under `reelabel`: picks, sizes, rates, where the frames came from, what made them; and under
`seal` a checksum of the whole file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from infra.errors import FrameFileError
from tasks.frames.key import ENCODING, SCHEMA_VERSION, decoder_versions
from tasks.frames.seal import BLANK_SEAL, SEAL_KEY, check_seal, seal
from tasks.video.keyframes import NO_PTS, UNKNOWN_POSITION

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.domain import Sampling
    from tasks.video.keyframes import Keyframes

_METADATA_KEY = b"reelabel"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameFile:
    """A frame file that was read and found whole.

    Attributes:
        images: RGB pixels; shape (N, H, W, 3), uint8, read-only, backed by the file's bytes.
        pts: Presentation times in the stream's time base, `NO_PTS` where there is none; shape (N,), int64.
        time_s: The same in seconds; shape (N,), float64.
        frame_index: Positions in the linear decode, `UNKNOWN_POSITION` where unknown; shape (N,), int64.
        is_keyframe: Whether each frame is a keyframe; shape (N,), bool.
        picks: Indices into `images` as shown to the model; shape (M,), int64.
        fps: Average frame rate of the source; 0.0 where unknown.
        duration_s: Length of the source; 0.0 where unknown.
        total_frames: Frames of the source; None where unknown.
        keyframes_in_file: Keyframes of the source.
        source_uri: The video.
        fingerprint: Which version of it.
        method: How the frames were reached.
        reason: Why not by the shortest way; empty otherwise.
    """

    images: npt.NDArray[np.uint8]
    pts: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.float64]
    frame_index: npt.NDArray[np.int64]
    is_keyframe: npt.NDArray[np.bool_]
    picks: npt.NDArray[np.int64]
    fps: float
    duration_s: float
    total_frames: int | None
    keyframes_in_file: int
    source_uri: str
    fingerprint: str
    method: str
    reason: str


def encode_frame_file(keyframes: Keyframes, *, source_uri: str, fingerprint: str, sampling: Sampling) -> bytes:
    """Write extracted frames as Arrow IPC."""
    count, height, width, _ = keyframes.images.shape
    pixels = np.ascontiguousarray(keyframes.images)
    metadata = {
        "schema": SCHEMA_VERSION,
        "encoding": ENCODING,
        "height_px": height,
        "width_px": width,
        "picks": keyframes.picks.tolist(),
        "deviation_s": None if keyframes.deviation_s is None else keyframes.deviation_s.tolist(),
        "fps": keyframes.fps,
        "duration_s": keyframes.duration_s,
        "total_frames": keyframes.total_frames,
        "keyframes_in_file": keyframes.keyframes_in_file,
        "pixel_aspect": keyframes.pixel_aspect,
        "native_width_px": keyframes.native_width_px,
        "native_height_px": keyframes.native_height_px,
        "rotation_deg": keyframes.rotation_deg,
        "method": keyframes.method,
        "reason": keyframes.reason,
        "dropped_as_similar": keyframes.dropped_as_similar,
        "decode_ms": keyframes.decode_ms,
        "source_uri": source_uri,
        "fingerprint": fingerprint,
        "sampling": sampling.model_dump(mode="json"),
        "made_by": {"reelabel": version("reelabel"), **decoder_versions()},
    }
    frame_bytes = height * width * 3
    columns = {
        "pixels": pa.FixedSizeBinaryArray.from_buffers(pa.binary(frame_bytes), count, [None, pa.py_buffer(pixels)]),
        "pts": pa.array(keyframes.pts, mask=keyframes.pts == NO_PTS),
        "time_s": pa.array(keyframes.time_s),
        "frame_index": pa.array(keyframes.frame_index, mask=keyframes.frame_index == UNKNOWN_POSITION),
        "is_keyframe": pa.array(keyframes.is_keyframe),
    }
    table = pa.table(columns).replace_schema_metadata(
        {_METADATA_KEY: json.dumps(metadata).encode(), SEAL_KEY: BLANK_SEAL},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return seal(sink.getvalue().to_pybytes())


def decode_frame_file(data: bytes) -> FrameFile:
    """Read a frame file without copying its pixels.

    Raises:
        FrameFileError: The bytes are not a frame file of this version, or are damaged.
    """
    check_seal(data)
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all().combine_chunks()
        metadata: dict[str, Any] = json.loads((table.schema.metadata or {})[_METADATA_KEY])
        if metadata["schema"] != SCHEMA_VERSION:
            raise FrameFileError(f"The frame file has schema {metadata['schema']}, not {SCHEMA_VERSION}.")
        images = _images(table, metadata)
        return FrameFile(
            images=images,
            pts=table["pts"].fill_null(NO_PTS).to_numpy(),
            time_s=table["time_s"].to_numpy(),
            frame_index=table["frame_index"].fill_null(UNKNOWN_POSITION).to_numpy(),
            is_keyframe=table["is_keyframe"].to_numpy(),
            picks=np.array(metadata["picks"], np.int64),
            fps=metadata["fps"],
            duration_s=metadata["duration_s"],
            total_frames=metadata["total_frames"],
            keyframes_in_file=metadata["keyframes_in_file"],
            source_uri=metadata["source_uri"],
            fingerprint=metadata["fingerprint"],
            method=metadata["method"],
            reason=metadata["reason"],
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError) as error:
        raise FrameFileError(f"The frame file is damaged ({type(error).__name__}).") from None


def _images(table: pa.Table, metadata: dict[str, Any]) -> npt.NDArray[np.uint8]:
    column = table["pixels"].chunk(0)
    shape = (table.num_rows, metadata["height_px"], metadata["width_px"], 3)
    flat: npt.NDArray[np.uint8] = np.frombuffer(column.buffers()[1], np.uint8, count=int(np.prod(shape)))
    return flat.reshape(shape)
