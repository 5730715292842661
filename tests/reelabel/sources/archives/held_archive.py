"""An archive in memory that says what was read of it."""

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from reelabel.sources.object_info import ObjectInfo
from reelabel.sources.source import Source


@dataclass
class HeldArchive(Source):
    """A `Source`; a `max_wait_s` of infinity makes it local."""

    data: bytes
    name: str = "s3://b/a.tar"
    max_wait_s: float = 60.0
    reads: list[tuple[int, int]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    @cached_property
    def info(self):
        fingerprint = f"s3:{len(self.data)}:{zlib.crc32(self.data)}"
        return ObjectInfo(uri=self.name, size_bytes=len(self.data), fingerprint=fingerprint)

    @property
    def bytes_read(self):
        return sum(size for _, size in self.reads)

    def read(self, start, size):
        assert start >= 0
        with self._lock:
            self.reads.append((start, min(size, max(0, len(self.data) - start))))
        return self.data[start : start + size]
