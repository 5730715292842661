"""What a store says about one object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.errors import ObjectChangedError, ObjectTooLargeError, RangesIgnoredError
from infra.uri import show_uri

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a bucket, or one file of a folder.

    Attributes:
        uri: Where it stands, in the form it was asked for.
        size_bytes: Its length.
        fingerprint: Another value means other content: ETag and size on S3, size and time of
            change (in nanoseconds) in a folder.
        modified: When it was last written, in UTC; None where the store does not say.
    """

    uri: str
    size_bytes: int
    fingerprint: str
    modified: datetime | None = field(default=None, compare=False)

    def require(self, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Check that this is the object which was looked at before, and that it is not too large.

        Raises:
            ObjectChangedError: It has another fingerprint.
            ObjectTooLargeError: It has more than `max_bytes`.
        """
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise changed(self.uri)
        if max_bytes is not None and self.size_bytes > max_bytes:
            raise too_large(self.uri, max_bytes)


def changed(uri: str) -> ObjectChangedError:
    """Say that another object has taken this one's place."""
    return ObjectChangedError(f"{show_uri(uri)} was replaced after it was looked at; look again and read the new one.")


def too_large(uri: str, max_bytes: int) -> ObjectTooLargeError:
    """Say that an object is over the limit."""
    return ObjectTooLargeError(
        f"{show_uri(uri)} has more than the {max_bytes:,} bytes that may be read; raise the limit."
    )


def check_range(uri: str, content_range: str | None, *, start: int) -> None:
    """Check that an answer to a ranged request begins where it was asked to.

    Raises:
        RangesIgnoredError: The server sends the whole object, or another part of it.
    """
    if content_range is None or not content_range.startswith(f"bytes {start}-"):
        raise RangesIgnoredError(
            f"The server of {show_uri(uri)} does not give the part that was asked for; download it whole."
        )
