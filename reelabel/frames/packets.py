"""Frame files that store keyframe packets instead of pixels, decoded and scaled on each read.

Packets are untrusted input. So they are decoded in disposable processes, on reading as on writing, and code that
reads pixels from a frame file never handles them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reelabel import arrow as pa
from reelabel.decode.keyframe_table import KeyframeTable, describe_table, table_arguments
from reelabel.errors import FallbackRequired, FrameFileError, VideoError
from reelabel.frames.frame_file import decode_frame_file
from reelabel.frames.pixels import encode_pixels
from reelabel.limits import Limits
from reelabel.options import read_options
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.sources.sparse_file import ByteRange, SparseFile

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.decode.keyframe_table import SavedIndex
    from reelabel.frames.frame_file import FrameFile
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.sparse_file import ByteSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredPackets:
    """Packets of some keyframes at their original offsets: a `ByteSource` that contains nothing else.

    Attributes:
        size_bytes: Length of the video file.
        table: The table of these keyframes.
        packets: The bytes of each packet.
    """

    size_bytes: int
    table: KeyframeTable = field(repr=False)
    packets: tuple[bytes, ...] = field(repr=False)

    @property
    def max_wait_s(self) -> float:
        """Seconds that reads may take; nominal, as reads are from memory."""
        return 1.0

    def read(self, start: int, size: int) -> bytes:
        """Read one or more adjacent packets."""
        stored = sorted(zip(self.table.pos.tolist(), self.packets, strict=True))
        return b"".join(packet for pos, packet in stored if start <= pos < start + size)


def collect_packets(keyframes: SampledFrames, index: SavedIndex, source: ByteSource) -> StoredPackets | None:
    """Collect the packets of extracted keyframes; None if no keyframe table of the video's index lists them.

    The video is read only for bytes missing from `keyframes.parts`.
    """
    if not isinstance(index, KeyframeTable) or keyframes.method != "index":
        return None
    if not np.isin(keyframes.pts, index.pts).all():
        return None
    rows = np.searchsorted(index.pts, keyframes.pts)
    columns = {name: getattr(index, name)[rows] for name in ("pts", "pos", "size", "frames_before")}
    table = replace(index, **columns)
    spans = list(map(ByteRange, table.pos.tolist(), table.size.tolist()))
    file = SparseFile(source, keyframes.parts)
    file.prefetch(spans)
    return StoredPackets(size_bytes=source.size_bytes, table=table, packets=tuple(map(file.read_span, spans)))


def decode_packets(
    stored: StoredPackets, pool: DecodePool, *, sampling: Sampling, limits: Limits
) -> npt.NDArray[np.uint8]:
    """Decode stored packets in a decoding process; return RGB pixels, as originally extracted; shape (N, H, W, 3).

    Raises:
        FallbackRequired: A packet does not decode to a keyframe.
        VideoError: As `DecodePool.extract` does.
    """
    every = Sampling(num_frames=EVERY, max_pixels=sampling.max_pixels, size_multiple_px=sampling.size_multiple_px)
    keyframes, _ = pool.extract_by_ranges(stored, sampling=every, limits=limits, known=stored.table)
    return keyframes.images


def verify_packets(
    stored: StoredPackets, keyframes: SampledFrames, pool: DecodePool, *, sampling: Sampling, limits: Limits
) -> bool:
    """Return whether stored packets decode to exactly the extracted pixels."""
    try:
        images = decode_packets(stored, pool, sampling=sampling, limits=limits)
    except (FallbackRequired, VideoError):
        return False
    return np.array_equal(images, keyframes.images)


def with_packets(file: FrameFile, stored: StoredPackets) -> bytes:
    """Return a frame file's bytes with packets instead of pixels."""
    facts = describe_table(stored.table) | {
        "pos": stored.table.pos.tolist(),
        "frames_before": stored.table.frames_before.tolist(),
        "size_bytes": stored.size_bytes,
    }
    packets = pa.array(stored.packets, pa.binary())
    return file.replace_pixels(packets, encoding="packets", packets=facts)


def with_pixels(file: FrameFile, pool: DecodePool, limits: Limits) -> bytes:
    """Return the bytes of a frame file that stores packets, with raw pixels instead.

    Raises:
        FrameFileError: The packets do not match the metadata.
        VideoError: As `DecodePool.extract` does.
    """
    try:
        sampling = read_options(Sampling, file.facts["sampling"])
        images = decode_packets(_stored_packets(file), pool, sampling=sampling, limits=limits)
    except (FallbackRequired, KeyError, TypeError, ValueError) as error:
        raise FrameFileError(f"The frame file's packets cannot be decoded ({error}).") from None
    return file.replace_pixels(encode_pixels(images, "raw"), encoding="raw", packets=None)


def read_frame_file(source: Path | str | bytes, *, pool: DecodePool | None = None) -> FrameFile:
    """Read a frame file of any encoding.

    Args:
        source: The file, or its bytes.
        pool: Decodes the packets of a file that stores packets instead of pixels; other files need none.

    Raises:
        FrameFileError: The file is damaged, or stores packets and there is no pool.
        VideoError: Its packets cannot be decoded.
        OSError: The file cannot be read.
    """
    file = decode_frame_file(source if isinstance(source, bytes) else Path(source).read_bytes())
    if not file.is_packed:
        return file
    if pool is None:
        raise FrameFileError("The frame file stores packets instead of pixels; pass a DecodePool that decodes them.")
    return decode_frame_file(with_pixels(file, pool, Limits()))


def _stored_packets(file: FrameFile) -> StoredPackets:
    packets = tuple(file.read_pixels().to_pylist())
    facts = dict(file.facts["packets"])
    size_bytes = facts.pop("size_bytes")
    table = KeyframeTable(
        pts=file.pts,
        pos=np.array(facts.pop("pos"), np.int64),
        size=np.array(list(map(len, packets)), np.int64),
        frames_before=np.array(facts.pop("frames_before"), np.int64),
        **table_arguments(facts),
    )
    return StoredPackets(size_bytes=size_bytes, table=table, packets=packets)
