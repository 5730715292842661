"""The frame cache: frame files and index files in object storage or a folder, written once and read many times."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from reelabel.errors import FrameFileError, ObjectMissingError
from reelabel.frames.frame_file import decode_frame_file
from reelabel.frames.index_file import decode_index, encode_index

if TYPE_CHECKING:
    from reelabel.frames.frame_file import FrameFile
    from reelabel.sources.object_store import ObjectStore
    from reelabel.strategies.keyframe_table import SavedIndex


class FrameCache:
    """Frame files and index files under one root, by key."""

    def __init__(self, objects: ObjectStore, root_uri: str, *, keep_bytes: int = 0) -> None:
        """Open a cache.

        Args:
            objects: The object store.
            root_uri: `s3://bucket/prefix` or `file:///folder`.
            keep_bytes: Maximum size of the frame files kept in memory. A file is kept from `find` or `write` until
                its `read`, which then fetches nothing.
        """
        self._objects = objects
        self._root_uri = root_uri.rstrip("/")
        self._memory = _MemoryCache(keep_bytes)

    def uri_of(self, key: str) -> str:
        """Return the URI of a key."""
        return f"{self._root_uri}/{key}"

    def reach(self) -> None:
        """Check that the store responds; see `ObjectStore.reach`.

        Raises:
            StoreUnavailableError: It does not.
        """
        self._objects.reach([self.uri_of("any")])

    def read(self, key: str) -> FrameFile:
        """Read a frame file.

        Raises:
            ObjectMissingError: The file does not exist.
            FrameFileError: The file is damaged.
        """
        return self._memory.take(key) or decode_frame_file(self._objects.read(self.uri_of(key)))

    def find(self, key: str) -> FrameFile | None:
        """Look up a frame file; return None if it is missing, damaged or outdated, and must be extracted."""
        try:
            found = self.read(key)
        except (ObjectMissingError, FrameFileError):
            return None
        if not found.has_coverage_facts:
            return None
        self._memory.put(key, found)
        return found

    def write(self, key: str, file: FrameFile) -> None:
        """Write a frame file, unless there is one that `find` accepts."""
        uri = self.uri_of(key)
        if not self._objects.write_new(uri, file.data):
            if self.find(key):
                return
            self._objects.replace(uri, file.data)
        self._memory.put(key, file)

    def find_index(self, key: str) -> SavedIndex:
        """Look up an index file; return an empty index if it is missing or damaged."""
        try:
            return decode_index(self._objects.read(self.uri_of(key)))
        except (ObjectMissingError, FrameFileError):
            return ()

    def write_index(self, key: str, index: SavedIndex) -> None:
        """Write an index file, unless there is an intact one."""
        uri, data = self.uri_of(key), encode_index(index)
        if not self._objects.write_new(uri, data) and not self.find_index(key):
            self._objects.replace(uri, data)


class _MemoryCache:
    """Frame files in memory, by key; each can be taken once, and the oldest are evicted first. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._free_bytes = max_bytes
        self._files: dict[str, FrameFile] = {}
        self._lock = threading.Lock()

    def put(self, key: str, file: FrameFile) -> None:
        with self._lock:
            self._drop(key)
            self._files[key] = file
            self._free_bytes -= len(file.data)
            while self._free_bytes < 0:
                self._drop(next(iter(self._files)))

    def take(self, key: str) -> FrameFile | None:
        with self._lock:
            return self._drop(key)

    def _drop(self, key: str) -> FrameFile | None:
        file = self._files.pop(key, None)
        self._free_bytes += len(file.data) if file else 0
        return file
