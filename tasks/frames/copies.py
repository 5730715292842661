"""Whole copies of remote videos, for as long as they are decoded, or longer."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import DiskUnavailableError
from infra.uri import show_uri
from tasks.frames.key import index_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.objects import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy in a file that decoding processes can open.

    Attributes:
        path: The file.
        bytes_fetched: Bytes read for it now; 0 where it stood there.
    """

    path: Path
    bytes_fetched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Where copies stand; safe to use from many threads and processes.

    Attributes:
        memory_bytes: The largest copy that stands in memory; 0 puts all on disk.
        folder: Where those on disk are kept, by video and version; None keeps none.
    """

    memory_bytes: int = 0
    folder: Path | None = None

    @contextmanager
    def hold(self, objects: ObjectStore, info: ObjectInfo, *, max_bytes: int) -> Iterator[Copy]:
        """Copy one version of a video, unless its copy was kept; many who ask for a kept one copy it once.

        Raises:
            ObjectError: As `ObjectStore.download` does.
            DiskUnavailableError: The copy cannot be written.
        """
        is_small = info.size_bytes <= self.memory_bytes
        if self.folder is not None and not is_small:
            with _disk_errors(info.uri, self.folder):
                kept = _keep(objects, info, self.folder, max_bytes=max_bytes)
            yield kept
            return
        with ExitStack() as stack:
            with _disk_errors(info.uri, None, in_memory=is_small):
                path = stack.enter_context(_nameless_file(in_memory=is_small))
                size_bytes = objects.download(info.uri, path, fingerprint=info.fingerprint, max_bytes=max_bytes)
            yield Copy(path=path, bytes_fetched=size_bytes)


@contextmanager
def _disk_errors(uri: str, folder: Path | None, *, in_memory: bool = False) -> Iterator[None]:
    """Say so where no copy can be written to a folder; None is the temporary one.

    Stores tell what is wrong with themselves in words of their own: what is left is this machine's.
    """
    try:
        yield
    except OSError as error:
        place = folder or ("memory" if in_memory else f"the temporary folder {tempfile.tempdir or ''}".rstrip())
        other = "" if in_memory else f", or name another folder in {'cache_dir' if folder else 'TMPDIR'}"
        raise DiskUnavailableError(
            f"No copy of {show_uri(uri)} can be written to {place} ({error.strerror or error}); make room there{other}."
        ) from error


@contextmanager
def _nameless_file(*, in_memory: bool) -> Iterator[Path]:
    """Make a file that ends with this process, however that ends.

    Other processes of the same user open it by the path that is given.
    """
    with open(os.memfd_create("video"), "wb") if in_memory else tempfile.TemporaryFile() as file:  # noqa: PTH123 - no path
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _keep(objects: ObjectStore, info: ObjectInfo, folder: Path, *, max_bytes: int) -> Copy:
    key = Path(index_key(source_uri=info.uri, fingerprint=info.fingerprint))
    home = folder / key.with_suffix("")
    home.mkdir(parents=True, exist_ok=True)
    path = home / "video"
    with _alone_in(home):
        if path.is_file() and path.stat().st_size == info.size_bytes:
            return Copy(path=path, bytes_fetched=0)
        unfinished = home / f".{secrets.token_hex(8)}.unfinished"
        size_bytes = objects.download(info.uri, unfinished, fingerprint=info.fingerprint, max_bytes=max_bytes)
        unfinished.replace(path)
        return Copy(path=path, bytes_fetched=size_bytes)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other threads and processes of this machine waiting, even if this one is killed then no longer."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network folder without locks: two may copy at once, each into a file of its own
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
