"""Frame files on object storage or in a folder: written once, read many times."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from infra.errors import FrameFileError, ObjectMissingError
from tasks.frames.file import decode_frame_file
from tasks.frames.index_file import decode_index, encode_index

if TYPE_CHECKING:
    from infra.objects import ObjectStore
    from tasks.frames.file import FrameFile
    from tasks.video.table import KnownIndex


class FrameCache:
    """Frame files below one root, by key."""

    def __init__(self, objects: ObjectStore, root_uri: str, *, keep_bytes: int = 0) -> None:
        """Remember where.

        Args:
            objects: The store.
            root_uri: `s3://bucket/prefix` or `file:///folder`.
            keep_bytes: Most bytes of frame files that are kept in memory, from when they were found whole
                or written until they are read, so that they need not be fetched once more.
        """
        self._objects = objects
        self._root_uri = root_uri.rstrip("/")
        self._kept = _Kept(keep_bytes)

    def uri_of(self, key: str) -> str:
        """Name the object behind a key."""
        return f"{self._root_uri}/{key}"

    def read(self, key: str) -> FrameFile:
        """Read a frame file.

        Raises:
            ObjectMissingError: It is not there.
            FrameFileError: It is damaged.
        """
        return self._kept.take(key) or decode_frame_file(self._objects.read(self.uri_of(key)))

    def find(self, key: str) -> FrameFile | None:
        """Look a frame file up; None where it is absent, damaged or of an earlier version, and must be made."""
        try:
            found = self.read(key)
        except (ObjectMissingError, FrameFileError):
            return None
        if not found.can_be_judged:
            return None
        self._kept.put(key, found)
        return found

    def write(self, key: str, file: FrameFile) -> None:
        """Write a frame file once; what `find` does not take in its place is replaced, the rest kept."""
        uri = self.uri_of(key)
        if not self._objects.write_new(uri, file.data):
            if self.find(key):
                return
            self._objects.replace(uri, file.data)
        self._kept.put(key, file)

    def find_index(self, key: str) -> KnownIndex:
        """Look an index file up; nothing where it is absent or damaged."""
        try:
            return decode_index(self._objects.read(self.uri_of(key)))
        except (ObjectMissingError, FrameFileError):
            return ()

    def write_index(self, key: str, index: KnownIndex) -> None:
        """Write an index file once; a damaged one in its place is replaced, a whole one kept."""
        uri, data = self.uri_of(key), encode_index(index)
        if not self._objects.write_new(uri, data) and not self.find_index(key):
            self._objects.replace(uri, data)


class _Kept:
    """Frame files by key, each taken once; the oldest make room for new ones. Safe to use from many threads."""

    def __init__(self, most_bytes: int) -> None:
        self._room_bytes = most_bytes
        self._files: dict[str, FrameFile] = {}
        self._lock = threading.Lock()

    def put(self, key: str, file: FrameFile) -> None:
        with self._lock:
            self._drop(key)
            self._files[key] = file
            self._room_bytes -= len(file.data)
            while self._room_bytes < 0:
                self._drop(next(iter(self._files)))

    def take(self, key: str) -> FrameFile | None:
        with self._lock:
            return self._drop(key)

    def _drop(self, key: str) -> FrameFile | None:
        file = self._files.pop(key, None)
        self._room_bytes += len(file.data) if file else 0
        return file
