"""Frame files on object storage or in a folder: written once, read many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import FrameFileError, ObjectMissingError
from tasks.frames.file import FrameFile, decode_frame_file
from tasks.frames.index_file import decode_index, encode_index

if TYPE_CHECKING:
    from infra.objects import ObjectStore
    from tasks.video.table import KnownIndex


class FrameCache:
    """Frame files below one root, by key."""

    def __init__(self, objects: ObjectStore, root_uri: str) -> None:
        """Keep the root, `s3://bucket/prefix` or `file:///folder`."""
        self._objects = objects
        self._root_uri = root_uri.rstrip("/")

    def uri_of(self, key: str) -> str:
        """Name the object behind a key."""
        return f"{self._root_uri}/{key}"

    def read(self, key: str) -> bytes:
        """Read a frame file's bytes.

        Raises:
            ObjectMissingError: It is not there.
        """
        return self._objects.read(self.uri_of(key))

    def find(self, key: str) -> FrameFile | None:
        """Look a frame file up; None where it is absent or damaged, and must be made."""
        try:
            return decode_frame_file(self.read(key))
        except (ObjectMissingError, FrameFileError):
            return None

    def write(self, key: str, data: bytes) -> None:
        """Write a frame file once; a damaged one in its place is replaced, a whole one kept."""
        uri = self.uri_of(key)
        if not self._objects.write_new(uri, data) and self.find(key) is None:
            self._objects.replace(uri, data)

    def find_index(self, key: str) -> KnownIndex:
        """Look an index file up; nothing where it is absent or damaged."""
        try:
            return decode_index(self.read(key))
        except (ObjectMissingError, FrameFileError):
            return ()

    def write_index(self, key: str, index: KnownIndex) -> None:
        """Write an index file once; a damaged one in its place is replaced, a whole one kept."""
        uri, data = self.uri_of(key), encode_index(index)
        if not self._objects.write_new(uri, data) and not self.find_index(key):
            self._objects.replace(uri, data)
