"""The frame cache: frame files and index files in object storage or a folder, written once and read many times.

Anyone who can write to the store can replace them. So a file is used only if its seal is valid, and if it is the one
asked for; any other is treated as missing, and replaced.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from reelabel import arrow as pa
from reelabel.errors import FrameFileError, ObjectMissingError, SealError
from reelabel.frames.frame_file import load_frames, verify_sealed
from reelabel.frames.sparse import check_ranges
from reelabel.seal import NO_KEY, Seal, embed_seal
from reelabel.sources.object_info import index_key
from reelabel.sources.sparse_file import CachedRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel.frames.cache_key import FrameIdentity
    from reelabel.result import Frames
    from reelabel.sources.object_store import ObjectStore


class FrameCache:
    """Frame files and index files under one root, by key."""

    def __init__(self, objects: ObjectStore, root_uri: str, *, seal: Seal = NO_KEY, keep_bytes: int = 0) -> None:
        """Open a cache below `s3://bucket/prefix` or `file:///folder`.

        Up to `keep_bytes` of frame files are kept in memory, each from its `find` or `write` until its `read`, which
        then fetches nothing.
        """
        self._objects = objects
        self._root_uri = root_uri.rstrip("/")
        self._seal = seal
        self._memory = _MemoryCache(keep_bytes)

    def uri_of(self, key: str) -> str:
        return f"{self._root_uri}/{key}"

    def check_reachable(self) -> None:
        """Raise StoreUnavailableError if the store does not respond; see `ObjectStore.check_reachable`."""
        self._objects.check_reachable([self.uri_of("any")])

    def read(self, identity: FrameIdentity) -> bytes:
        """Read a frame file; return its bytes, which `find` would accept.

        Raises ObjectMissingError, and FrameFileError if the file is damaged or altered, or is not the one asked for.
        """
        return self._memory.take(identity.key) or self._fetch(identity)

    def find(self, identity: FrameIdentity) -> Frames | None:
        """Look up the frames of a frame file; return None if it is missing or must not be used, and must be extracted.

        Pixels are decoded when they are first used; those that need a decoding process cannot be.
        """
        data = self._memory.take(identity.key)
        try:
            if data is None:
                data = self._fetch(identity)
            frames = load_frames(data)
        except (ObjectMissingError, FrameFileError):
            return None
        self._memory.put(identity.key, data)
        return frames

    def write(self, identity: FrameIdentity, data: bytes) -> str:
        """Write a frame file, unless there is one that `find` accepts; return why another was replaced, if one was."""
        sealed = embed_seal(data, self._seal, identity.key)
        refused = self._write(identity.key, sealed, check=partial(self._fetch, identity))
        self._memory.put(identity.key, sealed)
        return refused

    def find_index(self, key: str) -> tuple[CachedRange, ...]:
        """Look up the ranges of a remote video's header; return none if they are missing or must not be used."""
        try:
            return self._fetch_index(key)
        except (ObjectMissingError, FrameFileError):
            return ()

    def write_index(self, key: str, ranges: tuple[CachedRange, ...]) -> str:
        """Write the ranges of a remote video's header, unless `find_index` accepts what is there, as `write` does."""
        data = self._seal.wrap(key, encode_index(ranges))
        return self._write(key, data, check=partial(self._fetch_index, key))

    def find_archive_index(self, *, uri: str, fingerprint: str, part: str) -> memoryview | None:
        """Look up an index of an archive; return None if it is missing or must not be used."""
        try:
            return self._fetch_sealed(index_key(source_uri=uri, fingerprint=fingerprint, part=part))
        except (ObjectMissingError, FrameFileError):
            return None

    def write_archive_index(self, data: bytes, *, uri: str, fingerprint: str, part: str) -> None:
        """Write an index of an archive, unless there is one that `find_archive_index` accepts."""
        key = index_key(source_uri=uri, fingerprint=fingerprint, part=part)
        self._write(key, self._seal.wrap(key, data), check=partial(self._fetch_sealed, key))

    def _fetch(self, identity: FrameIdentity) -> bytes:
        data = self._objects.read(self.uri_of(identity.key))
        verify_sealed(data, identity, self._seal)
        return data

    def _fetch_index(self, key: str) -> tuple[CachedRange, ...]:
        return decode_index(self._fetch_sealed(key))

    def _fetch_sealed(self, key: str) -> memoryview:
        data = self._objects.read(self.uri_of(key))
        try:
            return self._seal.unwrap(key, data)
        except SealError as error:
            raise FrameFileError(error.message) from None

    def _write(self, key: str, data: bytes, *, check: Callable[[], object]) -> str:
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
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._files.pop(key, None)
            self._files[key] = data
            while self._files and sum(map(len, self._files.values())) > self._max_bytes:
                del self._files[next(iter(self._files))]

    def take(self, key: str) -> bytes | None:
        with self._lock:
            return self._files.pop(key, None)


def encode_index(ranges: tuple[CachedRange, ...]) -> bytes:
    columns = {
        "start": pa.array([each.start for each in ranges], pa.int64()),
        "data": pa.array([each.data for each in ranges], pa.large_binary()),
    }
    return pa.arrow_file(pa.table(columns), options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_index(data: bytes | memoryview) -> tuple[CachedRange, ...]:
    """Decode an index file whose seal is verified; raise FrameFileError if it is damaged."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        return check_ranges(map(CachedRange, table["start"].to_pylist(), table["data"].to_pylist()))
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise FrameFileError(f"The index file is damaged ({type(error).__name__}).") from None
