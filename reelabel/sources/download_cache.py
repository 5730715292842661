"""Local copies of remote videos, temporary or kept in a download cache."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.disk import is_full
from reelabel.errors import DiskFullError, DiskUnavailableError
from reelabel.sources.object_info import index_key, redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.sources.source import Source

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopy:
    """A local copy of a video, and the bytes downloaded for it: 0 if it was in the download cache."""

    path: Path
    bytes_fetched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadCache:
    """Stores local copies: small ones in memory, others on disk.

    Those of more than `memory_bytes` are in `folder`, by video and version, or if that is None, in temporary files.
    Safe for concurrent use by threads and processes.
    """

    memory_bytes: int = 0
    folder: Path | None = None

    @contextmanager
    def local_copy(self, source: Source, *, max_bytes: int) -> Iterator[LocalCopy]:
        """Copy a video for the duration of a `with` block.

        Copies in the folder are reused; concurrent requests for the same one download it once. Raises as
        `Source.copy_to` does, and DiskUnavailableError if the copy cannot be written.
        """
        uri, is_small = source.info.uri, source.size_bytes <= self.memory_bytes
        if self.folder is not None and not is_small:
            with _disk_errors(uri, self.folder):
                copy = _cached_copy(source, self.folder, max_bytes=max_bytes)
            yield copy
            return
        with ExitStack() as stack:
            with _disk_errors(uri, None, in_memory=is_small):
                path = stack.enter_context(_unnamed_file(in_memory=is_small))
                size_bytes = source.copy_to(path, max_bytes=max_bytes)
            yield LocalCopy(path=path, bytes_fetched=size_bytes)


@contextmanager
def _disk_errors(uri: str, folder: Path | None, *, in_memory: bool = False) -> Iterator[None]:
    """Convert write errors into DiskUnavailableError; a `folder` of None is the temporary folder.

    Stores raise errors of their own, so any OSError here comes from the local machine.
    """
    try:
        yield
    except OSError as error:
        location = folder or ("memory" if in_memory else f"the temporary folder {tempfile.tempdir or ''}".rstrip())
        hint = "" if in_memory else f", or name another folder in {'cache_dir' if folder else 'TMPDIR'}"
        raise (DiskFullError if is_full(error) else DiskUnavailableError)(
            f"Cannot write a copy of {redact_uri(uri)} to {location} ({error.strerror or error}); "
            f"free space there{hint}."
        ) from error


@contextmanager
def _unnamed_file(*, in_memory: bool) -> Iterator[Path]:
    """Create an unnamed file, which disappears with this process even if it is killed.

    Other processes of the same user can open it by the yielded path.
    """
    with open(os.memfd_create("video"), "wb") if in_memory else tempfile.TemporaryFile() as file:  # noqa: PTH123 - no path
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _cached_copy(source: Source, folder: Path, *, max_bytes: int) -> LocalCopy:
    key = Path(index_key(source_uri=source.info.uri, fingerprint=source.info.fingerprint))
    video_folder = folder / key.with_suffix("")
    video_folder.mkdir(parents=True, exist_ok=True)
    path = video_folder / "video"
    with _locked(video_folder) as is_locked:
        if path.is_file() and path.stat().st_size == source.size_bytes:
            return LocalCopy(path=path, bytes_fetched=0)
        # What a killed process left is overwritten. Other machines may not see the lock, and use names of their own.
        owner = _BOOT_ID.read_text().strip() if is_locked else secrets.token_hex(8)
        unfinished = video_folder / f".{owner}.unfinished"
        size_bytes = source.copy_to(unfinished, max_bytes=max_bytes)
        unfinished.replace(path)
        return LocalCopy(path=path, bytes_fetched=size_bytes)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder against other threads and processes of this machine; the lock ends with this process.

    Yields whether it is locked: some network folders cannot be, and two may then download at once.
    """
    lock, is_locked = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            is_locked = True
        yield is_locked
    finally:
        os.close(lock)
