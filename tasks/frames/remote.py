"""A video on a store, read in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        """
        return self.objects.read_range(self.info.uri, start=start, size=size, fingerprint=self.info.fingerprint)
