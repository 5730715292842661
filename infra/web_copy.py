"""Download of a whole object over several attempts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from infra.object_info import ObjectInfo, changed, too_large
from infra.web_answer import AttemptFailedError

if TYPE_CHECKING:
    from typing import BinaryIO

    from infra.web_answer import WebResponse


class WebCopy:
    """A download that resumes where an attempt broke off, and never mixes versions of the object."""

    def __init__(self, uri: str, sink: BinaryIO | None, *, fingerprint: str | None, max_bytes: int | None) -> None:
        """Copy the object with `fingerprint` to `sink`, which is seekable and empty; if None, only measure it."""
        self._uri = uri
        self._sink = sink
        self._wanted = fingerprint
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._seen: str | None = None
        self.size_bytes = 0

    @property
    def next_byte(self) -> int:
        """Position at which the next attempt begins; 0 if the version received so far is unknown."""
        return self.size_bytes if self._seen else 0

    @property
    def info(self) -> ObjectInfo:
        """Metadata of the copied object; the fingerprint is a hash of the content if the server sends no version."""
        fingerprint = self._seen or f"http:{self.size_bytes}:sha256:{self._hash.hexdigest()}"
        return ObjectInfo(uri=self._uri, size_bytes=self.size_bytes, fingerprint=fingerprint)

    def take(self, answer: WebResponse) -> None:
        """Write the body of a response.

        Raises:
            TryLaterError: The body is incomplete.
            ObjectChangedError: It belongs to another version.
            ObjectTooLargeError: It exceeds the limit, whatever its header says.
        """
        self._begin(answer)
        if answer.start is not None:
            for chunk in answer.chunks():
                self._add(chunk)
        if answer.size_bytes not in {None, self.size_bytes}:
            raise AttemptFailedError(f"{self.size_bytes:,} of {answer.size_bytes:,} bytes received")
        self.info.require(fingerprint=self._wanted, max_bytes=self._max_bytes)

    def _begin(self, answer: WebResponse) -> None:
        is_resumed = self.size_bytes > 0 and answer.start != 0
        if is_resumed and (answer.start, answer.fingerprint) != (self.size_bytes, self._seen):
            raise changed(self._uri)
        if self._wanted and answer.fingerprint and answer.fingerprint != self._wanted:
            raise changed(self._uri)
        self._check_size(answer.size_bytes or 0)
        self._seen = answer.fingerprint
        if not is_resumed:
            self._restart()

    def _restart(self) -> None:
        if self._sink is not None and self.size_bytes:
            self._sink.seek(0)
            self._sink.truncate()
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def _add(self, chunk: bytes) -> None:
        self._check_size(self.size_bytes + len(chunk))
        if self._sink is not None:
            self._sink.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    def _check_size(self, size_bytes: int) -> None:
        if self._max_bytes is not None and size_bytes > self._max_bytes:
            raise too_large(self._uri, self._max_bytes)
