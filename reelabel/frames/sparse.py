"""Sparse videos: only the ranges of a video that some frames were decoded from.

They are as untrusted as the whole video. So they are decoded in disposable processes, on reading as on writing, and
code that reads pixels from a frame file never handles them.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import FrameFileError
from reelabel.sources.sparse_file import ByteSource, CachedRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from reelabel.options import Limits
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment


_MAX_RECORDED_BYTES = 256 * 1024**2  # held in memory; a hostile decoding process may ask for any number of ranges


class RecordingSource:
    """A `ByteSource` that records what is read, up to a limit. Thread-safe, if its source is."""

    def __init__(self, source: ByteSource) -> None:
        self.size_bytes, self.max_wait_s = source.size_bytes, source.max_wait_s
        self._source = source
        self._read: dict[int, bytes] = {}
        self._read_bytes = 0

    @property
    def ranges(self) -> tuple[CachedRange, ...]:
        """What was read, in order; empty if it exceeded the limit."""
        return tuple(map(CachedRange, *zip(*sorted(self._read.items()), strict=True))) if self._read else ()

    def read(self, start: int, size: int) -> bytes:
        data = self._source.read(start, size)
        self._read_bytes += len(data)
        self._read[start] = data
        if self._read_bytes > _MAX_RECORDED_BYTES:
            self._read.clear()
        return data


@dataclass(frozen=True, slots=True, eq=False)
class SparseVideo:
    """Some ranges of a video, in order and without overlap; as a `ByteSource`, it has nothing else."""

    size_bytes: int
    ranges: tuple[CachedRange, ...]

    def __post_init__(self) -> None:
        check_ranges(self.ranges)
        if self.ranges and self.ranges[-1].end > self.size_bytes:
            raise ValueError(f"ranges must lie in the {self.size_bytes:,} bytes of the video")

    @property
    def max_wait_s(self) -> float:
        """Seconds that reads may take; nominal, as all reads fail."""
        return 1.0

    def read(self, start: int, size: int) -> bytes:
        """Raise FrameFileError: only the known ranges exist."""
        raise FrameFileError(f"The frame file lacks {size:,} bytes of the video at {start:,}.")

    def decode(
        self, pool: DecodePool, *, sampling: Sampling, segment: Segment, limits: Limits
    ) -> npt.NDArray[np.uint8]:
        """Decode the sampled frames; return their pixels, shape (N, H, W, 3).

        Raises FrameFileError or FallbackRequired if the ranges do not suffice.
        """
        frames, _ = pool.extract_by_ranges(self, sampling=sampling, segment=segment, limits=limits, known=self.ranges)
        return frames.unique


def check_ranges(ranges: Iterable[CachedRange]) -> tuple[CachedRange, ...]:
    """Return ranges of a file; raise ValueError if they are not in order, overlap or are empty."""
    checked, end = tuple(ranges), 0
    for each in checked:
        if each.start < end or not each.data:
            raise ValueError("ranges must be in order, and neither overlap nor be empty")
        end = each.end
    return checked


def hash_of(images: npt.NDArray[np.uint8]) -> str:
    return blake2b(np.ascontiguousarray(images).data, digest_size=16).hexdigest()
