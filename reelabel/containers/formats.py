"""The container formats that list their frames or keyframes, and which of them a file has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from reelabel.containers.avi import AVI
from reelabel.containers.container_format import OpenVideo, has_failed, parser_errors
from reelabel.containers.demux import open_video
from reelabel.containers.matroska import MATROSKA
from reelabel.containers.mp4 import MP4
from reelabel.errors import FallbackRequired
from reelabel.sources.sparse_file import SparseFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.containers.container_format import BinaryFile, ContainerFormat
    from reelabel.options import Limits
    from reelabel.sources.video_file import VideoFile

FORMATS = (MP4, MATROSKA, AVI)  # in the order in which files are probed, the commonest first


@contextmanager
def open_by_format(
    source: VideoFile | SparseFile, limits: Limits, *, strictly: bool = False, with_offsets: bool = False
) -> Iterator[OpenVideo]:
    """Open a video whose format may list its frames, as `open_video` does, reading no more than its index requires.

    Raises FallbackRequired if the file has no index, or cannot be read.
    """
    file = source if isinstance(source, SparseFile) else source.reopen()
    try:
        found = _find_format(file, source.size_bytes)
    except FallbackRequired as error:
        error.linear_only = True
        raise
    if found is None:
        raise FallbackRequired("the container has no index in its header", linear_only=True)
    with parser_errors(found.name, file):
        file.seek(0)
        found.prepare(file, source.size_bytes)
    file.seek(0)
    with open_video(source, limits, quickly=found.is_header_sufficient, strictly=strictly) as (container, stream):
        yield OpenVideo(
            format=found,
            container=container,
            stream=stream,
            source=source,
            file=file,
            limits=limits,
            with_offsets=with_offsets,
        )


def missing_bytes(source: VideoFile | SparseFile) -> int:
    """Return how many bytes a file lacks, by its top-level structure; 0 if it is complete or unknown."""
    file = source if isinstance(source, SparseFile) else source.reopen()
    try:
        found = _find_format(file, source.size_bytes)
        if found is None:
            return 0
        with parser_errors(found.name, file):
            file.seek(0)
            return found.missing_bytes(file, source.size_bytes)
    except FallbackRequired:
        if has_failed(file):
            raise
        return 0


def _find_format(file: BinaryFile, size_bytes: int) -> ContainerFormat | None:
    for each in FORMATS:
        with parser_errors(each.name, file):
            file.seek(0)
            if each.probe(file, size_bytes):
                return each
    return None
