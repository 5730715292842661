"""The frame file: an Arrow IPC file with one row per unique frame.

Columns: `pixels`, `pts`, `time_s`, `frame_index`, `is_keyframe`. The schema metadata holds everything else as JSON
under `reelabel`: pixel encoding, picks, sizes, rates, and all that the file was asked for by; and under `seal` a
checksum of the whole file, and its seal.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cached_property
from importlib.metadata import version
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel import arrow as pa
from reelabel.coverage import DEFAULT_THRESHOLDS, measure_coverage
from reelabel.errors import FrameFileError
from reelabel.frames.cache_key import SCHEMA_VERSION, FrameIdentity
from reelabel.frames.pixels import Encoding, LosslessEncoding, decode_pixels, encode_pixels, write_options
from reelabel.sampled_frames import NO_PTS, UNKNOWN_POSITION, Orientation, SampledFrames
from reelabel.seal import BLANK, METADATA_KEY, embed_checksum, verify_checksum, verify_seal
from reelabel.segment import Segment

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.coverage import CoverageThresholds, KeyframeCoverage
    from reelabel.sampling.options import Sampling
    from reelabel.seal import Seal


_METADATA_KEY = b"reelabel"
# Fields of `SampledFrames` that are columns, that are arrays, and that are found elsewhere in the file or not in it.
_COLUMNS = ("pts", "time_s", "frame_index", "is_keyframe")
_ARRAYS = {"picks": np.int64, "deviation_s": np.float64, "keyframe_ms": np.int64}
_ELSEWHERE = {*_COLUMNS, "images", "segment", "sampler", "orientation", "fetch_ms", "bytes_fetched", "parts"}
_STORED = tuple(each.name for each in fields(SampledFrames) if each.name not in _ELSEWHERE)
_QUARTER_TURNS = (90, 270)


class FrameFile:
    """A frame file whose checksum or seal is verified. Its values are those of `SampledFrames`; columns load lazily.

    Attributes:
        data: The file's bytes.
        facts: The complete metadata, as JSON values.
        encoding: How the pixels are stored.
        shape: Shape of `images`: (N, H, W, 3).
        source_uri: URI of the video.
        fingerprint: Version of the video.
    """

    encoding: Encoding
    source_uri: str
    fingerprint: str
    sampler: str
    picks: npt.NDArray[np.int64]
    deviation_s: npt.NDArray[np.float64] | None
    keyframe_ms: npt.NDArray[np.int64] | None
    keyframes_in_file: int
    first_ms: int | None
    first_s: float | None
    starts_s: float | None
    total_frames: int | None
    fps: float
    duration_s: float
    method: str
    reason: str
    frames_decoded: int

    def __init__(self, data: bytes, facts: dict[str, Any]) -> None:
        """Read the metadata.

        Raises:
            KeyError: A value is missing.
            ValueError: One has another type.
        """
        self.data, self.facts = data, facts
        vars(self).update({name: facts[name] for name in (*_STORED, "encoding", "source_uri", "fingerprint")})
        arrays = {name: np.array(facts[name], dtype) for name, dtype in _ARRAYS.items() if facts[name] is not None}
        vars(self).update(arrays)
        self.sampler = facts["sampling"]["sampler"]
        self.segment = Segment(*facts["segment_s"])
        self.shape = (int(self.picks.max()) + 1, facts["height_px"], facts["width_px"], 3)  # every frame is picked

    def coverage(self, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> KeyframeCoverage:
        """Return how well keyframes cover the source, by the container's list, else by a linear decode's."""
        return measure_coverage(
            self.keyframe_ms,
            first_ms=self.first_ms,
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

    def sampled(self) -> SampledFrames:
        """Return the frames with their pixels, as they were before they were stored, but for mirroring.

        Raises:
            FrameFileError: As for `images`.
        """
        rotation_deg = self.facts["rotation_deg"]
        return SampledFrames(
            images=self.images,
            segment=self.segment,
            sampler=self.sampler,
            orientation=Orientation(is_transposed=rotation_deg in _QUARTER_TURNS, rotation_deg=rotation_deg),
            **{name: getattr(self, name) for name in (*_COLUMNS, *_STORED)},
        )

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
    values = {name: getattr(keyframes, name) for name in _STORED}
    metadata = {
        **identity.facts(),
        **{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()},
        "rotation_deg": keyframes.rotation_deg,
        "encoding": encoding,
        "encoding_note": encoding_note,
        "height_px": height,
        "width_px": width,
        "made_by": f"reelabel {version('reelabel')}",
    }
    columns = {
        "pixels": encode_pixels(keyframes.images, encoding, jpeg_quality=sampling.jpeg_quality),
        "pts": pa.array(keyframes.pts, mask=keyframes.pts == NO_PTS),
        "time_s": pa.array(keyframes.time_s),
        "frame_index": pa.array(keyframes.frame_index, mask=keyframes.frame_index == UNKNOWN_POSITION),
        "is_keyframe": pa.array(keyframes.is_keyframe),
    }
    return FrameFile(_write(columns, metadata), metadata)


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
        return FrameFile(data, metadata)
    except _damage_errors() as error:
        raise FrameFileError(f"The frame file is damaged ({type(error).__name__}).") from None


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
