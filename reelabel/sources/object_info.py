"""Metadata of an object in a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reelabel.errors import ObjectChangedError, ObjectTooLargeError, RangesIgnoredError
from reelabel.sources.uri import redact_uri

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Metadata of an object in a bucket, or of a file.

    Attributes:
        uri: Its URI, in the form of the request.
        size_bytes: Its size.
        fingerprint: Changes if the content changes: ETag and size on S3, size and modification time (in
            nanoseconds) in a file system.
        modified: Time of the last change, in UTC; None if the store does not report it.
    """

    uri: str
    size_bytes: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)

    def require(self, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Check that the object is unchanged, and not too large.

        Raises:
            ObjectChangedError: Its fingerprint differs.
            ObjectTooLargeError: It is larger than `max_bytes`.
        """
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise changed(self.uri)
        if max_bytes is not None and self.size_bytes > max_bytes:
            raise too_large(self.uri, max_bytes)


def changed(uri: str) -> ObjectChangedError:
    """Return the error for an object that was replaced."""
    return ObjectChangedError(f"{redact_uri(uri)} was replaced while it was being read; read it again.")


def too_large(uri: str, max_bytes: int) -> ObjectTooLargeError:
    """Return the error for an object that exceeds the limit."""
    return ObjectTooLargeError(f"{redact_uri(uri)} exceeds the limit of {max_bytes:,} bytes; raise the limit.")


def check_range(uri: str, content_range: str | None, *, start: int) -> None:
    """Check that the response to a range request begins at `start`.

    Raises:
        RangesIgnoredError: The server sends the whole object, or another range.
    """
    if content_range is None or not content_range.startswith(f"bytes {start}-"):
        raise RangesIgnoredError(
            f"The server of {redact_uri(uri)} does not return the requested range; download the whole object."
        )
