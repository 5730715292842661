"""The frame cache: frame files and index files in object storage or a folder, written once and read many times.

Anyone who can write to the store can replace them. So a file is used only if its seal is valid, and if it is the one
asked for; any other is treated as missing, and replaced.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from reelabel import arrow as pa
from reelabel.decode.keyframe_table import KeyframeTable, describe_table, table_arguments
from reelabel.errors import FrameFileError, ObjectMissingError, SealError
from reelabel.frames.cache_key import archive_index_key
from reelabel.frames.frame_file import decode_sealed
from reelabel.seal import NO_KEY, embed_seal
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel.decode.keyframe_table import SavedIndex
    from reelabel.frames.cache_key import FrameIdentity
    from reelabel.frames.frame_file import FrameFile
    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectStore


_STREAM_KEY = b"stream"
_COLUMNS = ("pts", "pos", "size", "frames_before")


class FrameCache:
    """Frame files and index files under one root, by key."""

    def __init__(self, objects: ObjectStore, root_uri: str, *, seal: Seal = NO_KEY, keep_bytes: int = 0) -> None:
        """Open a cache.

        Args:
            objects: The object store.
            root_uri: `s3://bucket/prefix` or `file:///folder`.
            seal: Seals the files; the same wherever they are used.
            keep_bytes: Maximum size of the frame files kept in memory. A file is kept from `find` or `write` until
                its `read`, which then fetches nothing.
        """
        self._objects = objects
        self._root_uri = root_uri.rstrip("/")
        self._seal = seal
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

    def read(self, identity: FrameIdentity) -> FrameFile:
        """Read a frame file.

        Raises:
            ObjectMissingError: The file does not exist.
            FrameFileError: The file is damaged or altered, or is not the one asked for.
        """
        return self._memory.take(identity.key) or self._fetch(identity)

    def find(self, identity: FrameIdentity) -> FrameFile | None:
        """Look up a frame file; return None if it is missing or must not be used, and must be extracted."""
        found = self._memory.take(identity.key)
        if not found and (data := self._objects.find(self.uri_of(identity.key))) is not None:
            with suppress(FrameFileError):
                found = decode_sealed(data, identity, self._seal)
        if found:
            self._memory.put(identity.key, found)
        return found

    def write(self, identity: FrameIdentity, file: FrameFile) -> str:
        """Write a frame file, unless there is one that `find` accepts.

        Returns:
            Why the file that was there was replaced; empty if there was none, or one that `find` accepts.
        """
        data = embed_seal(file.data, self._seal, identity.key)
        refused = self._write(identity.key, data, check=partial(self._fetch, identity))
        self._memory.put(identity.key, file)
        return refused

    def find_index(self, key: str) -> SavedIndex:
        """Look up an index file; return an empty index if it is missing or must not be used."""
        try:
            return self._fetch_index(key)
        except (ObjectMissingError, FrameFileError):
            return ()

    def write_index(self, key: str, index: SavedIndex) -> str:
        """Write an index file, unless there is one that `find_index` accepts.

        Returns:
            Why the file that was there was replaced; empty if there was none, or one that `find_index` accepts.
        """
        data = self._seal.wrap(key, encode_index(index))
        return self._write(key, data, check=partial(self._fetch_index, key))

    def find_archive_index(self, *, uri: str, fingerprint: str, part: str) -> memoryview | None:
        """Look up an index of an archive; return None if it is missing or must not be used."""
        try:
            return self._fetch_sealed(archive_index_key(source_uri=uri, fingerprint=fingerprint, part=part))
        except (ObjectMissingError, FrameFileError):
            return None

    def write_archive_index(self, data: bytes, *, uri: str, fingerprint: str, part: str) -> None:
        """Write an index of an archive, unless there is one that `find_archive_index` accepts."""
        key = archive_index_key(source_uri=uri, fingerprint=fingerprint, part=part)
        self._write(key, self._seal.wrap(key, data), check=partial(self._fetch_sealed, key))

    def _fetch(self, identity: FrameIdentity) -> FrameFile:
        return decode_sealed(self._objects.read(self.uri_of(identity.key)), identity, self._seal)

    def _fetch_index(self, key: str) -> SavedIndex:
        return decode_index(self._fetch_sealed(key))

    def _fetch_sealed(self, key: str) -> memoryview:
        data = self._objects.read(self.uri_of(key))
        try:
            return self._seal.unwrap(key, data)
        except SealError as error:
            raise FrameFileError(error.message) from None

    def _write(self, key: str, data: bytes, *, check: Callable[[], object]) -> str:
        """Write a file, and replace one that is there only if `check` raises; return why."""
        uri, refused = self.uri_of(key), ""
        if self._objects.write_new(uri, data):
            return ""
        try:
            check()
        except FrameFileError as error:
            refused = error.message
        except ObjectMissingError:  # removed in the meantime
            pass
        else:
            return ""
        self._objects.replace(uri, data)
        return refused


class _MemoryCache:
    """Frame files in memory, by key; each can be taken once, and the oldest are evicted first. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._files: dict[str, FrameFile] = {}
        self._lock = threading.Lock()

    def put(self, key: str, file: FrameFile) -> None:
        with self._lock:
            self._files.pop(key, None)
            self._files[key] = file
            while self._files and sum(len(each.data) for each in self._files.values()) > self._max_bytes:
                del self._files[next(iter(self._files))]

    def take(self, key: str) -> FrameFile | None:
        with self._lock:
            return self._files.pop(key, None)


def encode_index(index: SavedIndex) -> bytes:
    """Encode where a remote video's keyframes are, so that other frames of it cost no more than their packets.

    An Arrow file, which the cache seals. For an MP4, it has a row for each keyframe, and the decoder's parameters as
    JSON in its metadata; for other containers, the ranges of the file that hold its own index.
    """
    if isinstance(index, KeyframeTable):
        columns = {name: pa.array(getattr(index, name)) for name in _COLUMNS}
        metadata = {_STREAM_KEY: json.dumps(describe_table(index)).encode()}
    else:
        columns = {
            "start": pa.array([extent.start for extent in index], pa.int64()),
            "data": pa.array([extent.data for extent in index], pa.large_binary()),
        }
        metadata = {}
    table = pa.table(columns).replace_schema_metadata(metadata)
    return pa.arrow_file(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_index(data: bytes | memoryview) -> SavedIndex:
    """Decode an index file whose seal is verified.

    Raises:
        FrameFileError: The bytes are damaged, or not an index file.
    """
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        metadata = table.schema.metadata or {}
        if _STREAM_KEY not in metadata:
            return tuple(map(CachedRange, table["start"].to_pylist(), table["data"].to_pylist()))
        columns = {name: table[name].to_numpy() for name in _COLUMNS}
        return KeyframeTable(**columns, **table_arguments(json.loads(metadata[_STREAM_KEY])))
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise FrameFileError(f"The index file is damaged ({type(error).__name__}).") from None
