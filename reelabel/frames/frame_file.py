"""The frame file: an Arrow IPC file with one row per unique frame.

Columns: `pixels`, `pts`, `time_s`, `frame_index`, `is_keyframe`. The schema metadata holds everything else as JSON
under `reelabel`: pixel encoding, picks, sizes, rates, and all that the file was asked for by; and under `seal` a
checksum of the whole file, and its seal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel import arrow as pa
from reelabel.coverage import DEFAULT_THRESHOLDS, measure_coverage
from reelabel.errors import FrameFileError
from reelabel.frames.cache_key import SCHEMA_VERSION, FrameIdentity
from reelabel.frames.pixels import Encoding, LosslessEncoding, decode_pixels, encode_pixels, write_options
from reelabel.sampled_frames import NO_PTS, UNKNOWN_POSITION
from reelabel.seal import BLANK, METADATA_KEY, embed_checksum, verify_checksum, verify_seal
from reelabel.segment import Segment

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.coverage import CoverageThresholds, KeyframeCoverage
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.seal import Seal


_METADATA_KEY = b"reelabel"
_READ_LATER = ("segment_s", "starts_s", "keyframe_ms", "first_ms")


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameFile:
    """A frame file whose checksum or seal is verified. Columns are read lazily.

    Attributes:
        data: The file's bytes.
        encoding: How the pixels are stored.
        shape: Shape of `images`: (N, H, W, 3).
        sampler: The sampler that chose the frames.
        frames_decoded: Frames output by decoders.
        picks: Indices into `images` in the order shown to the model; shape (M,), int64.
        fps: Average frame rate of the source; 0.0 if unknown.
        duration_s: Duration of the source; 0.0 if unknown.
        total_frames: Number of frames in the source; None if unknown.
        keyframes_in_file: Number of keyframes in the source.
        source_uri: URI of the video.
        fingerprint: Version of the video.
        method: How the frames were located: `index`, `seek` or `linear`.
        reason: Why a faster method was unavailable, and whether the source is cut short; empty if there is nothing to
            report.
        facts: The complete metadata, as JSON values.
    """

    data: bytes = field(repr=False)
    encoding: Encoding
    shape: tuple[int, int, int, int]
    sampler: str
    frames_decoded: int
    picks: npt.NDArray[np.int64]
    fps: float
    duration_s: float
    total_frames: int | None
    keyframes_in_file: int
    source_uri: str
    fingerprint: str
    method: str
    reason: str
    facts: dict[str, Any] = field(repr=False)

    @property
    def segment(self) -> Segment:
        """The part of the source that was sampled."""
        return Segment(*self.facts["segment_s"])

    @property
    def starts_s(self) -> float | None:
        """Start of the segment on the clock of `time_s`; None for the whole source."""
        starts_s: float | None = self.facts["starts_s"]
        return starts_s

    @property
    def keyframe_ms(self) -> npt.NDArray[np.int64] | None:
        """Presentation time of each keyframe in the source, in milliseconds; shape (K,), int64; None if unknown."""
        times_ms = self.facts["keyframe_ms"]
        return None if times_ms is None else np.array(times_ms, np.int64)

    def coverage(self, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> KeyframeCoverage:
        """Return how well keyframes cover the source, by the container's list, else by a linear decode's."""
        return measure_coverage(
            self.keyframe_ms,
            first_ms=self.facts["first_ms"],
            keyframes=self.keyframes_in_file,
            duration_s=self.duration_s,
            thresholds=thresholds,
            segment=self.segment,
            frames=self.total_frames,
        )

    @property
    def image_bytes(self) -> int:
        """Size of `images` in bytes, uncompressed."""
        return prod(self.shape)

    @property
    def pts(self) -> npt.NDArray[np.int64]:
        """Presentation timestamps in the stream's time base, `NO_PTS` if there is none; shape (N,), int64."""
        pts: npt.NDArray[np.int64] = self._table["pts"].fill_null(NO_PTS).to_numpy()
        return pts

    @property
    def is_packed(self) -> bool:
        """Whether it stores packets instead of pixels."""
        return self.encoding == "packets"

    @property
    def time_s(self) -> npt.NDArray[np.float64]:
        """Presentation times in seconds; shape (N,), float64."""
        time_s: npt.NDArray[np.float64] = self._table["time_s"].to_numpy()
        return time_s

    @property
    def frame_index(self) -> npt.NDArray[np.int64]:
        """Positions in the linear decode, `UNKNOWN_POSITION` if unknown; shape (N,), int64."""
        positions: npt.NDArray[np.int64] = self._table["frame_index"].fill_null(UNKNOWN_POSITION).to_numpy()
        return positions

    @property
    def is_keyframe(self) -> npt.NDArray[np.bool_]:
        """Whether each frame is a keyframe; shape (N,), bool."""
        flags: npt.NDArray[np.bool_] = self._table["is_keyframe"].to_numpy()
        return flags

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """RGB pixels; shape (N, H, W, 3), uint8, read-only; a view of `data` if stored raw.

        Raises:
            FrameFileError: The pixels do not match the metadata, or the file holds packets instead.
        """
        if self.encoding == "packets":
            raise FrameFileError("The frame file holds packets, not pixels; decode it with reelabel.frames.packets.")
        try:
            return decode_pixels(self.read_pixels(), self.encoding, self.shape)
        except _damage_errors() as error:
            raise FrameFileError(f"The frame file is damaged ({type(error).__name__}).") from None

    def read_pixels(self) -> pa.Array:
        """Return the pixel column as stored."""
        return self._table["pixels"].chunk(0)

    @cached_property
    def _table(self) -> pa.Table:
        try:
            # Only the pixel column is large: threads for the others cost more than they save.
            options = pa.ipc.IpcReadOptions(use_threads=False)
            return pa.ipc.open_file(pa.py_buffer(self.data), options=options).read_all()
        except _damage_errors() as error:
            raise FrameFileError(f"The frame file is damaged ({type(error).__name__}).") from None

    def replace_pixels(self, pixels: pa.Array, *, encoding: Encoding, **facts: Any) -> bytes:  # noqa: ANN401 - JSON
        """Return the file's bytes with another pixel column, and `facts` merged into its metadata."""
        columns = dict(zip(self._table.column_names, self._table.columns, strict=True)) | {"pixels": pixels}
        return _write(columns, self.facts | facts | {"encoding": encoding})


def encode_frame_file(
    keyframes: SampledFrames,
    *,
    source_uri: str,
    fingerprint: str,
    sampling: Sampling,
    lossless: LosslessEncoding = "zstd",
    encoding_note: str = "",
) -> FrameFile:
    """Create a frame file from extracted frames.

    Args:
        keyframes: The frames.
        source_uri: URI of the video; the file contains no embedded video or signed query of it.
        fingerprint: Version of the video.
        sampling: How the frames were chosen; with a `jpeg_quality`, they are stored as JPEG.
        lossless: How they are stored otherwise.
        encoding_note: Why the requested encoding was not used; empty if it was.

    Raises:
        VideoTooLargeError: A frame is too large for JPEG.
    """
    encoding: Encoding = "jpeg" if sampling.jpeg_quality else lossless
    identity = FrameIdentity(
        source_uri=source_uri, fingerprint=fingerprint, sampling=sampling, segment=keyframes.segment
    )
    _, height, width, _ = keyframes.images.shape
    metadata = {
        **identity.facts(),
        "encoding": encoding,
        "encoding_note": encoding_note,
        "height_px": height,
        "width_px": width,
        "picks": keyframes.picks.tolist(),
        "deviation_s": None if keyframes.deviation_s is None else keyframes.deviation_s.tolist(),
        "fps": keyframes.fps,
        "duration_s": keyframes.duration_s,
        "total_frames": keyframes.total_frames,
        "keyframe_ms": None if keyframes.keyframe_ms is None else keyframes.keyframe_ms.tolist(),
        "first_ms": keyframes.first_ms,
        "frames_decoded": keyframes.frames_decoded,
        "keyframes_in_file": keyframes.keyframes_in_file,
        "pixel_aspect": keyframes.pixel_aspect,
        "native_width_px": keyframes.native_width_px,
        "native_height_px": keyframes.native_height_px,
        "rotation_deg": keyframes.rotation_deg,
        "method": keyframes.method,
        "reason": keyframes.reason,
        "dropped_as_similar": keyframes.dropped_as_similar,
        "decode_ms": keyframes.decode_ms,
        "starts_s": keyframes.starts_s,
        "made_by": f"reelabel {version('reelabel')}",
    }
    columns = {
        "pixels": encode_pixels(keyframes.images, encoding, jpeg_quality=sampling.jpeg_quality),
        "pts": pa.array(keyframes.pts, mask=keyframes.pts == NO_PTS),
        "time_s": pa.array(keyframes.time_s),
        "frame_index": pa.array(keyframes.frame_index, mask=keyframes.frame_index == UNKNOWN_POSITION),
        "is_keyframe": pa.array(keyframes.is_keyframe),
    }
    return _frame_file(_write(columns, metadata), metadata)


def decode_frame_file(data: bytes) -> FrameFile:
    """Verify a frame file's checksum and read its metadata.

    Raises:
        FrameFileError: The bytes are damaged, or not a frame file of this version.
    """
    verify_checksum(data)
    return _decode(data)


def decode_sealed(data: bytes, identity: FrameIdentity, seal: Seal) -> FrameFile:
    """Verify a frame file's seal, and that it is the one asked for, and read its metadata.

    Raises:
        FrameFileError: The bytes are damaged or altered, were sealed with another key, or are not the file asked for.
    """
    file = unseal_frame_file(data, identity.key, seal)
    if different := identity.differences(file.facts):
        raise FrameFileError(f"It was made for something else: {', '.join(different)} differ from what is asked for.")
    return file


def unseal_frame_file(data: bytes, name: str, seal: Seal) -> FrameFile:
    """Verify the seal of a frame file of a given name, whatever its frames were asked for by, and read its metadata.

    Raises:
        FrameFileError: The bytes are damaged or altered, were sealed with another key, or belong elsewhere.
    """
    verify_seal(data, seal, name)
    return _decode(data)


def _decode(data: bytes) -> FrameFile:
    try:
        schema = pa.ipc.open_file(pa.py_buffer(data)).schema
        metadata: dict[str, Any] = json.loads((schema.metadata or {})[_METADATA_KEY])
        if metadata["schema"] != SCHEMA_VERSION:
            raise FrameFileError(f"Unsupported frame file: schema {metadata['schema']}, expected {SCHEMA_VERSION}.")
        itemgetter(*_READ_LATER)(metadata)
        return _frame_file(data, metadata)
    except _damage_errors() as error:
        raise FrameFileError(f"The frame file is damaged ({type(error).__name__}).") from None


def _frame_file(data: bytes, metadata: dict[str, Any]) -> FrameFile:
    picks = np.array(metadata["picks"], np.int64)
    return FrameFile(
        data=data,
        encoding=metadata["encoding"],
        shape=(int(picks.max()) + 1, metadata["height_px"], metadata["width_px"], 3),  # every frame is picked
        sampler=metadata["sampling"]["sampler"],
        frames_decoded=metadata["frames_decoded"],
        picks=picks,
        fps=metadata["fps"],
        duration_s=metadata["duration_s"],
        total_frames=metadata["total_frames"],
        keyframes_in_file=metadata["keyframes_in_file"],
        source_uri=metadata["source_uri"],
        fingerprint=metadata["fingerprint"],
        method=metadata["method"],
        reason=metadata["reason"],
        facts=metadata,
    )


def _write(columns: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    table = pa.table(columns).replace_schema_metadata(
        {_METADATA_KEY: json.dumps(metadata).encode(), METADATA_KEY: BLANK},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=write_options(metadata["encoding"])) as writer:
        writer.write_table(table)
    return embed_checksum(sink.getvalue().to_pybytes())


def _damage_errors() -> tuple[type[Exception], ...]:
    return (pa.ArrowException, OSError, KeyError, ValueError, IndexError)
