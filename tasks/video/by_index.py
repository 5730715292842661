"""The fastest strategy: find keyframes in the container's index and decode each from its own packet."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from av.stream import Discard

from infra.errors import VideoUnreadableError
from tasks.video.by_avi_index import extract_by_avi_index
from tasks.video.header import is_mp4
from tasks.video.listing import first_presented_pts, keyframe_pts
from tasks.video.misled import FastPathUnavailableError, IndexMismatchError
from tasks.video.ranges import SparseFile
from tasks.video.reader import KeyframeReader
from tasks.video.riff import is_avi
from tasks.video.shots import IndexSummary, assemble_frames
from tasks.video.source import open_video
from tasks.video.stream import StreamProperties
from tasks.video.tabulate import build_keyframe_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from tasks.video.keyframes import SampledFrames
    from tasks.video.shots import ExtractionRequest


def extract_by_index(request: ExtractionRequest) -> SampledFrames:
    """Extract the picked keyframes, reading only the header and their packets.

    Raises:
        MisledError: The container has no index, or the file contradicts it.
        VideoError: As `extract_keyframes` does.
    """
    if request.every:
        raise FastPathUnavailableError("all keyframes were requested")
    try:
        return _extract(request)
    except VideoUnreadableError:
        raise FastPathUnavailableError("the container cannot be opened from its header alone") from None


def _extract(request: ExtractionRequest) -> SampledFrames:
    with _open_binary(request.source) as (file, size_bytes):
        if is_avi(file):
            return extract_by_avi_index(request, file, size_bytes)
        is_quick = is_mp4(file, size_bytes)
    with open_video(request.source, request.limits, quickly=is_quick, strictly=True) as opened:
        container, stream = opened
        for other in container.streams:
            if other is not stream:
                other.discard = Discard.all
        reader = KeyframeReader(container, stream, size_bytes)
        with _open_binary(request.source) as (file, _):
            offset = file.tell()
            pts = keyframe_pts(reader, file, size_bytes)
            first_pts = first_presented_pts(reader, pts, file, size_bytes)
            file.seek(offset)  # FFmpeg tracks its own offset in a remote file and may read on without seeking
        if first_pts is None and not request.segment.is_whole:
            raise FastPathUnavailableError("frames precede the first keyframe in the index")
        chosen = request.choose(pts, stream.time_base, first_pts=first_pts)
        numbers = list(dict.fromkeys(chosen))
        remote = request.source if isinstance(request.source, SparseFile) else None
        if remote:
            remote.index = remote.extents
            remote.prefetch(reader.spans(numbers))
        census = IndexSummary(
            keyframes=len(reader.index.keyframes),
            frames=reader.index.frames,
            keyframe_pts=pts,
            first_pts=reader.first_pts if first_pts is None else first_pts,
        )
        frames = request.tally.each(reader.read(numbers, limits=request.limits, threads=request.threads))
        describe = partial(StreamProperties.of, *opened)
        got = assemble_frames(request, describe, chosen=chosen, frames=frames, census=census, method="index")
        if not request.segment.is_whole and any(pts[number] != shown for number, shown in reader.demuxed.items()):
            raise IndexMismatchError("keyframe times in the index are wrong")
        if remote and is_quick:
            remote.index = build_keyframe_table(reader, got, stream=describe(), file=remote) or remote.index
        return got


@contextmanager
def _open_binary(source: Path | SparseFile) -> Iterator[tuple[BinaryIO | SparseFile, int]]:
    """Open a video as a binary file; yield it with its length in bytes."""
    if isinstance(source, SparseFile):
        yield source, source.size_bytes
        return
    try:
        with source.open("rb", buffering=0) as file:
            yield file, source.stat().st_size
    except OSError:
        raise FastPathUnavailableError("the file cannot be read") from None
