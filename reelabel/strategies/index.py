"""Decode keyframes by the container's index, each from its own packet."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from av.stream import Discard

from reelabel.containers.container_index import is_mp4
from reelabel.containers.demux import open_video
from reelabel.containers.riff import is_avi
from reelabel.containers.stream_properties import StreamProperties
from reelabel.containers.truncation import missing_bytes
from reelabel.decode.assemble import IndexSummary, assemble_frames
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError, IndexMismatchError
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sources.sparse_file import SparseFile
from reelabel.strategies.avi_index import extract_by_avi_index
from reelabel.strategies.keyframe_reader import KeyframeReader
from reelabel.strategies.keyframe_table import KeyframeTable
from reelabel.strategies.keyframe_times import first_presented_pts, keyframe_pts, sample_table_pts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames


def build_keyframe_table(
    reader: KeyframeReader, got: SampledFrames, *, stream: StreamProperties, file: SparseFile
) -> KeyframeTable | None:
    """Build the table of all keyframes, or return None if the header is not sufficient.

    PTS are computed from the sample tables, and checked against those of the demuxed packets.

    Args:
        reader: The keyframe reader that was used.
        got: The frames extracted with it.
        stream: Properties of the stream.
        file: The file, whose header is cached.
    """
    index, codec = reader.index, reader.codec
    pts = sample_table_pts(reader, file, file.size_bytes)
    if codec is None or index.frames is None or pts is None or not reader.begins_with_keyframe:
        return None  # a table implies that the first keyframe is the first frame
    numbers, _, pos, size = np.array(index.keyframes, np.int64).T
    if any(pts[number] != known for number, known in reader.demuxed.items()) or (np.diff(pts) <= 0).any():
        return None
    hidden = reader.hidden_before
    return KeyframeTable(
        codec=codec,
        stream=stream,
        orientation=got.orientation,
        pts=pts,
        pos=pos,
        size=size,
        frames_before=np.full(len(pts), UNKNOWN_POSITION) if hidden is None else numbers - hidden,
        frames=index.frames,
        missing_bytes=missing_bytes(file, file.size_bytes),
    )


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
