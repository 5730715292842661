"""A remote video, read by range requests."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.errors import ObjectRefusedError, VideoRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.objects import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True)
class RemoteVideo:
    """One version of an object, as a `tasks.video.ranges.ByteSource`."""

    objects: ObjectStore
    info: ObjectInfo

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    @property
    def patience_s(self) -> float:
        """Seconds that all reads together may take."""
        return self.objects.patience_s(self.info.uri)

    def read(self, start: int, size: int) -> bytes:
        """Read exactly `size` bytes from `start`.

        Raises:
            ObjectError: The object is missing or has changed, or its server ignores ranges.
            StoreUnavailableError: The store is unavailable.
            VideoRefusedError: Access to the object is denied.
        """
        with isolate_refusal():
            return self.objects.read_range(self.info.uri, start=start, size=size, fingerprint=self.info.fingerprint)


@contextmanager
def isolate_refusal() -> Iterator[None]:
    """Make denied access to one video fail that video only, as the store may serve others.

    Raises:
        VideoRefusedError: Instead of an ObjectRefusedError.
    """
    try:
        yield
    except ObjectRefusedError as error:
        raise VideoRefusedError(error.message) from None
