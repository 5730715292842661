"""What a store says about one object."""

from __future__ import annotations

from dataclasses import dataclass

from infra.errors import ObjectChangedError, ObjectError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a bucket, or one file of a folder.

    Attributes:
        uri: Where it stands, in the form it was asked for.
        size_bytes: Its length.
        fingerprint: Another value means other content: ETag and size on S3, size and time of
            change (in nanoseconds) in a folder.
    """

    uri: str
    size_bytes: int
    fingerprint: str

    def require(self, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Check that this is the object which was looked at before, and that it is not too large.

        Raises:
            ObjectChangedError: It has another fingerprint.
            ObjectError: It has more than `max_bytes`.
        """
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise changed(self.uri)
        if max_bytes is not None and self.size_bytes > max_bytes:
            raise ObjectError(f"{self.uri} has {self.size_bytes} bytes, more than the {max_bytes} that may be read.")


def changed(uri: str) -> ObjectChangedError:
    """Say that another object has taken this one's place."""
    return ObjectChangedError(f"{uri} was replaced after it was looked at; look again and read the new one.")
