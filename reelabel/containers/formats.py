"""The container formats that list their frames, or their keyframes, and which of them a file is of."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.containers.avi import AVI
from reelabel.containers.container_format import OpenVideo
from reelabel.containers.demux import open_video
from reelabel.containers.matroska import MATROSKA
from reelabel.containers.mp4 import MP4
from reelabel.errors import FallbackRequired, ReelabelError
from reelabel.segment import WHOLE
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.containers.container_format import BinaryFile, ContainerFormat, KeyframePackets
    from reelabel.index import VideoIndex
    from reelabel.limits import Limits
    from reelabel.segment import Segment
    from reelabel.sources.video_file import VideoFile

FORMATS = (MP4, MATROSKA, AVI)  # in the order in which files are probed, the commonest first


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
    container: ContainerFormat

    @contextmanager
    def open(self, limits: Limits, *, strictly: bool = False, with_places: bool = False) -> Iterator[OpenVideo]:
        """Open the video, as `open_video` does, reading no more than its index requires.

        With `with_places`, its frames are listed with the places of their packets in the file.

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
            yield OpenVideo(container, stream, self.file, self.size_bytes, limits, with_places)

    def read_keyframes(self, video: OpenVideo) -> tuple[VideoIndex, KeyframePackets]:
        """List the keyframes, and read their packets.

        Raises:
            FallbackRequired: The index is missing or inconsistent.
        """
        with self.guard():
            return self.container.read_keyframes(video)

    def read_frames(self, video: OpenVideo, segment: Segment = WHOLE) -> VideoIndex:
        """List the frames, or those that determine which ones lie in a segment.

        Raises:
            FallbackRequired: The index does not list them, or is inconsistent.
        """
        if self.container.read_frames is None:
            raise FallbackRequired("the container does not list every frame")
        with self.guard():
            return self.container.read_frames(video, segment)

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
        if container is None:
            return 0
        with _guard(container.name, file):
            file.seek(0)
            return container.missing_bytes(file, size_bytes)
    except FallbackRequired:
        if _has_failed(file):
            raise
        return 0


def _find_container(file: BinaryFile, size_bytes: int) -> ContainerFormat | None:
    for container in FORMATS:
        with _guard(container.name, file):
            file.seek(0)
            if container.probe(file, size_bytes):
                return container
    return None


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
