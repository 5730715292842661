"""The registry of container formats with a keyframe index."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.avi import AVI
from reelabel.containers.container_index import OpenVideo
from reelabel.containers.demux import open_video
from reelabel.containers.matroska import MATROSKA
from reelabel.containers.mp4 import MP4
from reelabel.errors import FallbackRequired, ReelabelError
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.containers.container_index import BinaryFile, ContainerIndex, KeyframeIndex
    from reelabel.limits import Limits
    from reelabel.sources.video_file import VideoFile

ENTRY_POINT_GROUP = "reelabel.containers"

# Files are probed in this order, the commonest format first.
_CONTAINERS: dict[str, ContainerIndex] = {each.name: each for each in (MP4, MATROSKA, AVI)}


def register(container: ContainerIndex) -> None:
    """Register a container format in this process; to reach decoding processes, use the entry point group.

    Raises:
        ValueError: The name is taken.
    """
    if container.name in _CONTAINERS:
        raise ValueError(f"A container named {container.name!r} is already registered; choose another name.")
    _CONTAINERS[container.name] = container


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedFile:
    """A file whose container format is known.

    Attributes:
        source: The file, as opened by FFmpeg.
        file: Its bytes.
        size_bytes: Its length.
        container: Its format.
    """

    source: VideoFile | SparseFile
    file: BinaryFile
    size_bytes: int
    container: ContainerIndex

    @contextmanager
    def open(self, limits: Limits, *, strictly: bool = False) -> Iterator[OpenVideo]:
        """Open the video, as `open_video` does, reading no more than its index requires.

        Raises:
            FallbackRequired: The file has no index.
            VideoError: As `open_video` does.
        """
        with self.guard():
            self.file.seek(0)
            self.container.prepare(self.file, self.size_bytes)
        self.file.seek(0)
        quickly = self.container.is_header_sufficient
        with open_video(self.source, limits, quickly=quickly, strictly=strictly) as (container, stream):
            yield OpenVideo(container, stream, self.file, self.size_bytes, limits)

    def read_index(self, video: OpenVideo) -> KeyframeIndex:
        """Read the keyframe index.

        Raises:
            FallbackRequired: The index is missing or inconsistent.
        """
        with self.guard():
            index = self.container.read_index(video)
            if (np.diff(index.pts) <= 0).any():
                raise FallbackRequired("keyframes are not presented in index order")
            return index

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Let unexpected exceptions of the container's code fail this strategy only.

        Raises:
            FallbackRequired: The block raised an exception that is neither ours nor the store's.
        """
        with _guard(self.container.name, self.file):
            yield


def probe_file(source: VideoFile | SparseFile) -> ProbedFile:
    """Determine the container format of a file.

    Raises:
        FallbackRequired: The file cannot be read, or its format has no index.
    """
    file = source if isinstance(source, SparseFile) else source.reopen()
    container = _find_container(file, source.size_bytes)
    if container is None:
        raise FallbackRequired("the container has no index in its header")
    return ProbedFile(source=source, file=file, size_bytes=source.size_bytes, container=container)


def missing_bytes(file: BinaryFile, size_bytes: int) -> int:
    """Return how many bytes a file lacks, by its top-level structure; 0 if it is complete or unknown."""
    try:
        container = _find_container(file, size_bytes)
        if container is None or container.missing_bytes is None:
            return 0
        with _guard(container.name, file):
            file.seek(0)
            return container.missing_bytes(file, size_bytes)
    except FallbackRequired:
        if _has_failed(file):
            raise
        return 0


def _find_container(file: BinaryFile, size_bytes: int) -> ContainerIndex | None:
    for container in _containers(file):
        with _guard(container.name, file):
            file.seek(0)
            if container.probe(file, size_bytes):
                return container
    return None


def _containers(file: BinaryFile) -> Iterator[ContainerIndex]:
    """Yield all formats, those of installed packages last, because finding these takes milliseconds."""
    known = dict(_CONTAINERS)
    yield from known.values()
    for found in _installed():
        with _guard(found.name, file):
            _register_installed(found)
    yield from (container for name, container in _CONTAINERS.items() if name not in known)


def load_installed() -> None:
    """Import the container formats of installed packages; one that fails is left to fail for each file."""
    for found in _installed():
        with suppress(Exception):
            _register_installed(found)


@cache
def _installed() -> EntryPoints:
    return entry_points(group=ENTRY_POINT_GROUP)


@cache
def _register_installed(found: EntryPoint) -> None:
    register(found.load())


@contextmanager
def _guard(name: str, file: BinaryFile) -> Iterator[None]:
    try:
        yield
    except (ReelabelError, FallbackRequired, MemoryError):
        raise
    except Exception as error:
        if _has_failed(file):
            raise
        raise FallbackRequired(f"the container {name} failed ({type(error).__name__}: {error})") from error


def _has_failed(file: BinaryFile) -> bool:
    """Return whether a remote file could not be read, which is no fault of a container's code."""
    return isinstance(file, SparseFile) and file.failure is not None
