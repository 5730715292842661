"""Uploaded videos: files of a temporary folder, named by their content, for as long as requests need them."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING

from flows.serve.refusals import RequestRefusedError
from reelabel.disk import disk_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB = 1024**2


class Upload:
    """A video as it arrives."""

    def __init__(self, file: IO[bytes], path: Path, *, max_bytes: int) -> None:
        """Start with nothing.

        Args:
            file: Where to write it; closed by the caller.
            path: Its path.
            max_bytes: Largest video.
        """
        self.path = path
        self.size_bytes = 0
        self._file = file
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            RequestRefusedError: There are too many.
        """
        self.size_bytes += len(data)
        if self.size_bytes > self._max_bytes:
            raise too_large(self._max_bytes)
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> str:
        """End it; return the SHA-256 of its bytes."""
        self._file.close()
        return self._hash.hexdigest()


class Uploads:
    """The uploaded videos of one service. Thread-safe.

    The same bytes are the same file of the same version, so that their frames are found in the cache again.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        """Keep videos in a folder.

        Args:
            folder: A folder of this process alone.
            max_bytes: Largest video.
        """
        self.folder = folder
        self.max_bytes = max_bytes
        self._users = Counter[Path]()
        self._lock = threading.Lock()

    @contextmanager
    def receive(self) -> Iterator[Upload]:
        """Yield what a video is written to; it is gone at the end, unless `keep` has taken it over.

        Raises:
            DiskFullError: There is no space for it.
        """
        with disk_errors(self.folder):
            handle, name = tempfile.mkstemp(dir=self.folder)
            path = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    yield Upload(file, path, max_bytes=self.max_bytes)
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def keep(self, upload: Upload) -> Iterator[str]:
        """Yield the path of a whole video, which is there until the last request that needs it has ended."""
        kept = self.folder / f"{upload.finish()}.video"
        with self._lock:
            self._users[kept] += 1
            os.utime(upload.path, (0, 0))  # its version: that of all files with these bytes
            upload.path.replace(kept)
        try:
            yield str(kept)
        finally:
            with self._lock:
                self._users[kept] -= 1
                if not self._users[kept]:
                    del self._users[kept]
                    kept.unlink(missing_ok=True)


def too_large(max_bytes: int) -> RequestRefusedError:
    """Return the refusal of a video that is too large."""
    return RequestRefusedError(
        f"The upload is larger than {max_bytes // _MIB:,} MiB; cut the video, raise serve.max_upload_mib, or send its "
        "URI instead.",
        code="upload_too_large",
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )
