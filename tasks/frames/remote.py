"""A video on a store, read in parts."""

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
    """The bytes of one object, as `tasks.video.ranges.ByteSource`; all of one version of it."""

    objects: ObjectStore
    info: ObjectInfo

    @property
    def size_bytes(self) -> int:
        """Length of the whole."""
        return self.info.size_bytes

    @property
    def patience_s(self) -> float:
        """Seconds that reads may take, one of them or all together."""
        return self.objects.patience_s(self.info.uri)

    def read(self, start: int, size: int) -> bytes:
        """Read a part.

        Raises:
            ObjectError: It is gone, replaced, or given whole only.
            StoreUnavailableError: The store does not answer.
            VideoRefusedError: It may not be read.
        """
        with own_refusal():
            return self.objects.read_range(self.info.uri, start=start, size=size, fingerprint=self.info.fingerprint)


@contextmanager
def own_refusal() -> Iterator[None]:
    """Let a video that may be looked at, but not read, fail alone: the store gives others.

    Raises:
        VideoRefusedError: Instead of an ObjectRefusedError.
    """
    try:
        yield
    except ObjectRefusedError as error:
        raise VideoRefusedError(error.message) from None
