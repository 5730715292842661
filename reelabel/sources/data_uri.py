"""Objects embedded in their URI: `data:video/mp4;base64,AAAA` (RFC 2397)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from reelabel.errors import VideoRefusedError
from reelabel.sources.folder import partial_file
from reelabel.sources.object_info import ObjectInfo, redact_uri, too_large

if TYPE_CHECKING:
    from pathlib import Path

_BASE64 = ";base64"
_CHARACTERS_PER_BYTE = 3  # a percent-encoded byte, such as %41


class DataUri:
    """Reads `data:` URIs, which are immutable."""

    max_wait_s = math.inf

    def stat(self, uri: str) -> ObjectInfo:
        """Return the size and fingerprint of the data."""
        return _describe(uri, _decode(uri))

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Return the data."""
        if max_bytes is not None and len(uri) > _CHARACTERS_PER_BYTE * max_bytes + len(uri.partition(",")[0]) + 1:
            raise too_large(uri, max_bytes)  # not even decoded
        data = _decode(uri)
        _describe(uri, data).require(fingerprint=fingerprint, max_bytes=max_bytes)
        return data

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Return a range of the data."""
        return self.read(uri, fingerprint=fingerprint, max_bytes=None)[start : start + size]

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Write the data to `path`."""
        data = self.read(uri, fingerprint=fingerprint, max_bytes=max_bytes)
        with partial_file(path) as file:
            return file.write(data)


def _describe(uri: str, data: bytes) -> ObjectInfo:
    fingerprint = f"data:{len(data)}:{hashlib.sha256(data).hexdigest()}"
    return ObjectInfo(uri=uri, size_bytes=len(data), fingerprint=fingerprint)


def _decode(uri: str) -> bytes:
    header, comma, text = uri.partition(",")
    if not comma:
        raise VideoRefusedError(f"{redact_uri(uri)} has no comma before its data; write data:video/mp4;base64,AAAA.")
    data = unquote_to_bytes(text)
    if not header.lower().endswith(_BASE64):
        return data
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)  # it may contain line breaks
    except binascii.Error as error:
        raise VideoRefusedError(f"{redact_uri(uri)} is not valid base64: {error}; encode the video again.") from None
