"""What the header and the index of a video tell, before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties, one_pts_to_ms, pts_to_ms
from reelabel.coverage import measure_coverage
from reelabel.decode.tone_mapping import hdr_transfer
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.segment import WHOLE
from reelabel.sources.sparse_file import SparseFile
from reelabel.strategies.keyframe_times import UNKNOWN_TIMES, keyframe_times_by_packets

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.coverage import CoverageThresholds, KeyframeCoverage
    from reelabel.decode.tone_mapping import Hdr
    from reelabel.limits import Limits
    from reelabel.segment import Segment
    from reelabel.sources.sparse_file import CachedRange
    from reelabel.sources.video_file import VideoFile
    from reelabel.strategies.keyframe_table import KeyframeTable

# A file without an index is demuxed to find its keyframes if it is local and up to this size.
WHOLE_BYTES = 64 * 1024**2
Listed: TypeAlias = Literal["index", "packets", "not"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexFacts:
    """What the header and the index of a video tell; the file may contradict them.

    Attributes:
        container: Name of its format; empty if unknown.
        codec: Name of the codec; empty if unknown.
        width_px: Width as stored, without the margins that the container crops; 0 if unknown.
        height_px: Its height; 0 if unknown.
        hdr: Transfer function if the header states one of HDR; empty otherwise.
        fps: Average frame rate; 0.0 if unknown.
        duration_s: Duration; 0.0 if unknown.
        frames: Number of frames, estimated from rate and duration if it is not stated; None if unknown.
        listed: How the keyframes were found: by the container's index, by demuxing all packets, or not.
        times_ms: Presentation times of the keyframes in milliseconds, ascending; shape (K,); None if unknown.
        sizes_bytes: Bytes to read for each keyframe; shape (K,); None if unknown.
        first_ms: Presentation time of the first frame; None if unknown.
        note: Why the keyframes are not listed by an index; empty if they are.
    """

    container: str = ""
    codec: str = ""
    width_px: int = 0
    height_px: int = 0
    hdr: Hdr = ""
    fps: float = 0.0
    duration_s: float = 0.0
    frames: int | None = None
    listed: Listed = "not"
    times_ms: npt.NDArray[np.int64] | None = None
    sizes_bytes: npt.NDArray[np.int64] | None = None
    first_ms: int | None = None
    note: str = ""

    @property
    def keyframes(self) -> int | None:
        """Number of keyframes; None if unknown."""
        return None if self.times_ms is None else len(self.times_ms)

    def coverage(self, thresholds: CoverageThresholds, segment: Segment = WHOLE) -> KeyframeCoverage:
        """Measure how well the keyframes cover the video, or a segment of it, as a run does."""
        return measure_coverage(
            self.times_ms,
            first_ms=self.first_ms,
            keyframes=0,
            duration_s=self.duration_s,
            thresholds=thresholds,
            segment=segment,
        )


def facts_of_table(table: KeyframeTable) -> IndexFacts:
    """Return the facts that an index file holds."""
    stream = table.stream
    width_px, height_px = stream.crop.size_left(table.codec.width, table.codec.height)
    return IndexFacts(
        container="mp4",
        codec=table.codec.name,
        width_px=width_px,
        height_px=height_px,
        hdr=hdr_transfer(table.codec),
        fps=stream.fps,
        duration_s=stream.duration_s,
        frames=table.frames,
        listed="index",
        times_ms=pts_to_ms(table.pts, stream.time_base),
        sizes_bytes=table.size,
        first_ms=one_pts_to_ms(int(table.pts[0]), stream.time_base),
    )


def read_index_facts(file: VideoFile | SparseFile, limits: Limits) -> tuple[IndexFacts, tuple[CachedRange, ...]]:
    """Read the header and the index of a video; decode nothing.

    Returns:
        The facts, and of a remote video the ranges that hold its index, if it has one.

    Raises:
        VideoError: As `extract_keyframes` does, as far as the header tells.
        Exception: Whatever the source of a remote video raises.
    """
    if not isinstance(file, SparseFile):
        return _read(file, limits), ()
    with file.looked_into():
        facts = _read(file, limits)
    return facts, file.extents if facts.listed == "index" else ()


def _read(file: VideoFile | SparseFile, limits: Limits) -> IndexFacts:
    try:
        return _by_index(file, limits)
    except (FallbackRequired, VideoUnreadableError) as error:
        return _by_header(file, limits, note=str(error))


def _by_index(file: VideoFile | SparseFile, limits: Limits) -> IndexFacts:
    probed = probe_file(file)
    with probed.open(limits) as video:
        index = probed.read_index(video)
        time_base = video.stream.time_base
        times_ms = pts_to_ms(index.pts, time_base)
        found = times_ms is not None
        return replace(
            _describe(video.container, video.stream, name=probed.container.name, frames=index.frames),
            listed="index" if found else "not",
            times_ms=times_ms,
            sizes_bytes=index.size.astype(np.int64) if found else None,
            first_ms=one_pts_to_ms(index.earliest_pts, time_base),
        )


def _by_header(file: VideoFile | SparseFile, limits: Limits, *, note: str) -> IndexFacts:
    with open_video(file, limits) as (container, stream):
        facts = replace(_describe(container, stream, name=container.format.name.split(",")[0]), note=note)
    if isinstance(file, SparseFile) or file.size_bytes > WHOLE_BYTES:
        return facts
    listing = keyframe_times_by_packets(file, limits) or UNKNOWN_TIMES
    if listing.times_ms is None or not listing.times_ms.size:
        return facts
    return replace(facts, listed="packets", times_ms=listing.times_ms, first_ms=listing.first_ms)


def _describe(container: InputContainer, stream: VideoStream, *, name: str, frames: int | None = None) -> IndexFacts:
    stated, codec = StreamProperties.of(container, stream), stream.codec_context
    width_px, height_px = stated.crop.size_left(codec.width, codec.height)
    return IndexFacts(
        container=name,
        codec=codec.name,
        width_px=width_px,
        height_px=height_px,
        hdr=hdr_transfer(codec),
        fps=stated.fps,
        duration_s=max(0.0, stated.duration_s),
        frames=frames or stream.frames or round(stated.fps * stated.duration_s) or None,
    )
