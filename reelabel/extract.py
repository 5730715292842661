"""Frame-exact extraction: the same pixels as a full linear decode, at a fraction of its cost.

The frames are listed by the container's index, else by a pass over all packets, else by a linear decode. By the first
index, keyframes are decoded from their packets alone, other frames from their GOPs; by the second, all from GOPs. Each
result is verified; if that fails, the next index is tried.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import av
import numpy as np

from reelabel.containers.formats import missing_bytes
from reelabel.containers.stream_properties import check_frame_times
from reelabel.coverage import CoverageThresholds
from reelabel.decode.assemble import DecodeStats, ExtractionRequest
from reelabel.errors import FallbackRequired, SamplingRefusedError, unreadable
from reelabel.limits import Limits
from reelabel.read_index import list_keyframes
from reelabel.sampled_frames import UNKNOWN_POSITION
from reelabel.sampling.options import Sampling
from reelabel.sampling.passes import resolve_auto
from reelabel.sampling.registry import find_sampler
from reelabel.sampling.similar import drop_similar
from reelabel.sampling.spec import EVERY
from reelabel.segment import WHOLE
from reelabel.sources.sparse_file import SparseFile
from reelabel.sources.video_file import open_video_file
from reelabel.strategies.gops import extract_by_frame_index, extract_by_packet_scan
from reelabel.strategies.keyframe_table import KeyframeTable
from reelabel.strategies.linear import LinearVideo, extract_linearly
from reelabel.strategies.packets import extract_by_keyframe_packets, extract_by_table

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.index import VideoIndex
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.choose import Wanted
    from reelabel.segment import Segment, Windows
    from reelabel.sources.sparse_file import ByteSource
    from reelabel.sources.video_file import VideoFile
    from reelabel.strategies.keyframe_table import SavedIndex

_COLUMNS = ("images", "pts", "time_s", "frame_index", "is_keyframe")
_DEFAULT_SAMPLING = Sampling()
_DEFAULT_LIMITS = Limits()
_ROUNDED_AWAY = 2  # frames that samplers of a rate lose by taking whole steps, and pairs


def extract_local(
    video: Path | str | bytes,
    *,
    sampling: Sampling = _DEFAULT_SAMPLING,
    limits: Limits = _DEFAULT_LIMITS,
    native: bool = False,
    every: bool = False,
    threads: int = 1,
    segment: Segment = WHOLE,
) -> SampledFrames:
    """Decode sampled frames of a video, in this process: its keyframes, or those of a dense sampler.

    Each frame is byte-identical to the one that a full linear decode outputs at its time. A hostile video can take over
    the process that decodes it: `DecodePool.extract` decodes in others.

    Args:
        video: A local file, or the bytes of a video.
        sampling: Which frames to decode, and at what size; `auto` uses keyframes where they cover the video.
        limits: Limits on the video.
        native: Keep frames unscaled and unrotated, as returned by `to_ndarray(format="rgb24")`.
        every: Return every keyframe once instead of `sampling.num_frames` picks.
        threads: Threads for frames that can be decoded independently.
        segment: The part of the video to sample from.

    Raises:
        ValueError: The segment is not valid.
        VideoMissingError: The file does not exist.
        VideoRefusedError: A URI was given; `PrepareVideo` reads them.
        VideoEmptyError: The file is empty.
        VideoUnreadableError: FFmpeg cannot read the file.
        NoVideoStreamError: The file has no video stream.
        NoFramesError: No frame could be decoded.
        SamplingRefusedError: The sampler cannot choose frames of this video.
        VideoTooLargeError: The file, a frame or the time that the frames span exceeds the limits.
    """
    segment.check_valid()
    with open_video_file(video) as file:
        try:
            return extract_file(
                file, sampling=sampling, limits=limits, native=native, every=every, threads=threads, segment=segment
            )
        except av.FFmpegError as error:
            raise unreadable(error) from None


def extract_file(  # noqa: PLR0913 - the fields of an extraction request
    file: VideoFile,
    *,
    sampling: Sampling,
    limits: Limits,
    native: bool = False,
    every: bool = False,
    threads: int = 1,
    segment: Segment = WHOLE,
    windows: Windows = (),
    roughly: bool = False,
    fast_only: bool = False,
    wanted: Wanted | None = None,
) -> SampledFrames:
    """Decode sampled frames of an open video, as `extract_local` does; a dense sampler, from `windows` alone.

    With `roughly`, the frames need not be exact; see `ExtractionRequest`. With `fast_only`, FallbackRequired is
    raised instead of decoding the video from its beginning. `wanted` frames take the place of a dense sampler's.
    """
    started, stats = time.perf_counter(), DecodeStats()
    listed = list_keyframes(file, limits) if sampling.sampler == "auto" else None
    if sampling.sampler == "auto":
        if listed is None and fast_only:
            raise FallbackRequired("the keyframes of the file are not listed")
        sampling = _resolve_auto(sampling, listed or _index_by_decoding(file, limits, stats), segment)
    request = ExtractionRequest(
        source=file,
        sampling=sampling,
        limits=limits,
        native=native,
        every=every,
        threads=threads,
        segment=segment,
        windows=windows,
        roughly=roughly,
        fast_only=fast_only,
        wanted=wanted,
        stats=stats,
    )
    got = _extract(request)
    if got.method != "index":  # report the same keyframe times for every sampler, as `auto` uses them
        got = _with_listing(got, listed or list_keyframes(file, limits))
    return _finish(got, request, missing_bytes(file.reopen(), file.size_bytes), since=started)


class VideoInOrder:
    """A video that is decoded from its beginning, in one pass for all segments that are extracted in order of time.

    What is extracted equals what `extract_file` extracts where nothing is faster.
    """

    def __init__(self, file: VideoFile, limits: Limits, *, by_packets: bool = False) -> None:
        """List the frames, by decoding all of them.

        With `by_packets`, they are listed by demuxing, if packets announce them all; and by decoding only once a frame
        turns out to be another than announced.

        Raises:
            VideoError: As `extract_local` does.
        """
        started = time.perf_counter()
        self._file, self._limits = file, limits
        self._video = LinearVideo(file, limits, by_packets=by_packets)
        self._listed = list_keyframes(file, limits)
        self._counted, self._listed_s = 0, time.perf_counter() - started

    @property
    def frames(self) -> int:
        """Number of its frames."""
        return len(self._video.index.order)

    def close(self) -> None:
        """Close the video."""
        self._video.close()

    def extract(
        self, sampling: Sampling, segment: Segment, *, native: bool = False, wanted: Wanted | None = None
    ) -> SampledFrames:
        """Decode sampled frames of a segment, or those that are wanted in their place.

        Raises:
            VideoError: As `extract_local` does.
        """
        started, self._listed_s = time.perf_counter() - self._listed_s, 0.0
        listed = None if self._video.index.note else self._listed
        if sampling.sampler == "auto":
            sampling = _resolve_auto(sampling, listed or self._video.index, segment)
        request = ExtractionRequest(
            source=self._file, sampling=sampling, limits=self._limits, native=native, segment=segment, wanted=wanted
        )
        try:
            got = extract_linearly(request, self._video)
        except FallbackRequired:  # packets announced another frame
            self._video.close()
            self._video, self._counted = LinearVideo(self._file, self._limits), 0
            got = extract_linearly(request, self._video)
        got = got if self._video.index.note else _with_listing(got, self._listed)
        request.stats.frames, self._counted = self._video.frames_decoded - self._counted, self._video.frames_decoded
        missing = missing_bytes(self._file.reopen(), self._file.size_bytes)
        return _finish(got, request, missing, since=started)


def extract_ranges(  # noqa: PLR0913 - the fields of an extraction request
    source: ByteSource,
    *,
    sampling: Sampling,
    limits: Limits,
    known: SavedIndex = (),
    threads: int = 1,
    segment: Segment = WHOLE,
    native: bool = False,
    windows: Windows = (),
    roughly: bool = False,
    wanted: Wanted | None = None,
) -> tuple[SampledFrames, SavedIndex]:
    """Decode sampled frames of a remote video, fetching little more than the index and what those frames need.

    Args:
        source: The video's bytes.
        sampling: Which frames to decode, and at what size; `auto` uses keyframes where they cover the video.
        limits: Limits on the video's size.
        known: The index that an earlier call returned for the same bytes.
        threads: Threads for decoding.
        segment: The part of the video to sample from.
        windows: The parts of the segment that a dense sampler samples from; empty for all of it.
        native: Keep frames unscaled and unrotated.
        roughly: The frames need not be exact; see `ExtractionRequest`.
        wanted: Frames that take the place of those of a dense sampler.

    Returns:
        The frames, and the index for later calls.

    Raises:
        FallbackRequired: Byte ranges do not suffice; download the whole file and call `extract_local`.
        VideoError: As `extract_local` does.
        Exception: Whatever `source.read` raises.
    """
    started, stats = time.perf_counter(), DecodeStats()
    file = SparseFile(source, known if isinstance(known, tuple) else ())
    try:
        if sampling.sampler == "auto":
            sampling = _resolve_auto(sampling, _keyframes_of_ranges(file, known, limits), segment)
        request = ExtractionRequest(
            source=file,
            sampling=sampling,
            limits=limits,
            native=native,
            threads=threads,
            segment=segment,
            windows=windows,
            roughly=roughly,
            wanted=wanted,
            stats=stats,
        )
        got, index = _extract_by_ranges(request, file, known)
        if isinstance(known, KeyframeTable) and got.method == "index":
            missing = known.missing_bytes
        else:
            missing = missing_bytes(file, file.size_bytes)
        file.settle()
        _check_reads(file)
    except Exception as error:  # noqa: BLE001 - whatever the source raised
        cause = file.failure or error  # FFmpeg may have treated a failed read as the end of the file
        if isinstance(cause, FallbackRequired):
            cause.bytes_fetched, cause.frames_decoded = file.bytes_fetched, stats.frames
        raise cause from None
    got = _finish(got, request, missing, since=started + file.wait_s)
    parts = file.extents if sampling.sampler == "keyframes" else ()
    return replace(got, fetch_ms=file.wait_s * 1e3, bytes_fetched=file.bytes_fetched, parts=parts), index


def _extract(request: ExtractionRequest) -> SampledFrames:
    """Extract from a local file, by the fastest method that is exact."""
    reasons: dict[str, None] = {}  # an ordered set
    is_contradicted = False
    by_container = extract_by_keyframe_packets if request.shows_keyframes else extract_by_frame_index
    for kind in ("container", "packets"):
        try:
            got = by_container(request)[0] if kind == "container" else extract_by_packet_scan(request)
        except FallbackRequired as error:
            # Reported are the packets' faults where no index lists frames, and a false index where no GOP decodes.
            is_news = request.shows_keyframes or error.linear_only or kind == "packets"
            if is_news and not (is_contradicted and error.linear_only):
                reasons[str(error)] = None
            is_contradicted |= is_news and error.index_is_wrong
            if error.linear_only:
                break
        else:
            got = _with_notes(got, *reasons)
            return _without_counts(got) if is_contradicted else got
    if request.fast_only:
        unavailable = FallbackRequired("; ".join(reasons))
        unavailable.frames_decoded = request.stats.frames
        raise unavailable
    with closing(LinearVideo(request.source, request.limits)) as video:
        got = extract_linearly(request, video)
        request.stats.frames += video.frames_decoded
    return _with_notes(got, *reasons)


def _extract_by_ranges(
    request: ExtractionRequest, file: SparseFile, known: SavedIndex
) -> tuple[SampledFrames, SavedIndex]:
    if not request.shows_keyframes:
        file.allow_whole_if_small()
        got, index = extract_by_frame_index(request)
        return got, known if isinstance(known, KeyframeTable) else index
    if isinstance(known, KeyframeTable):
        return extract_by_table(request, file, known), known
    return extract_by_keyframe_packets(request)


def _keyframes_of_ranges(file: SparseFile, known: SavedIndex, limits: Limits) -> VideoIndex:
    listed = known.index if isinstance(known, KeyframeTable) else list_keyframes(file, limits)
    if listed is None:
        raise FallbackRequired("the keyframes of the file are not listed")
    return listed


def _check_reads(file: SparseFile) -> None:
    """Raise the failure that FFmpeg has treated as the end of the file, if any."""
    if file.failure:
        raise file.failure


def _index_by_decoding(file: VideoFile, limits: Limits, stats: DecodeStats) -> VideoIndex:
    """List all frames by decoding them: exact in any container, where packets may be flagged wrongly."""
    with closing(LinearVideo(file, limits)) as video:
        stats.frames += video.frames_decoded
        return video.index


def _with_listing(got: SampledFrames, listed: VideoIndex | None) -> SampledFrames:
    if listed is None or not listed.is_listed:  # a linear decode has counted them itself
        return got
    return replace(got, keyframe_ms=listed.keyframe_ms, first_ms=listed.first_ms)


def _resolve_auto(sampling: Sampling, index: VideoIndex, segment: Segment) -> Sampling:
    """Resolve the sampler `auto`, before anything is decoded."""
    return resolve_auto(sampling, is_good=index.coverage(CoverageThresholds.of(sampling), segment).is_good)


def _finish(got: SampledFrames, request: ExtractionRequest, missing: int, *, since: float) -> SampledFrames:
    """Return frames, with what was found out and spent since a time, within the limits.

    Args:
        got: The frames.
        request: What was asked for.
        missing: Bytes missing at the end of the file.
        since: When the extraction began, by `time.perf_counter`, without the time spent waiting for reads.
    """
    got = _check_truncation(_without_similar(_check_request(got, request), request.sampling), missing)
    return replace(
        check_frame_times(got, request.limits),
        frames_decoded=request.stats.frames,
        sampler=request.sampling.sampler,
        decode_ms=(time.perf_counter() - since) * 1e3,
    )


def _with_notes(got: SampledFrames, *notes: str) -> SampledFrames:
    return replace(got, reason="; ".join(filter(None, [*notes, got.reason])))


def _check_request(got: SampledFrames, request: ExtractionRequest) -> SampledFrames:
    """Note in `reason` if no frame lies in the segment, and if `max_frames` does not allow the rate.

    Raises:
        SamplingRefusedError: The segment starts after the end of the video.
    """
    start_s, duration_s = request.segment.start_s or 0.0, got.duration_s
    is_empty = request.stats.is_empty
    if is_empty and 0 < duration_s <= start_s:
        raise SamplingRefusedError(
            f"The segment starts at {start_s:g} s, but the video ends at {duration_s:g} s; correct start_s.",
        )
    notes = [_thinned_note(got, request.sampling)]
    if is_empty:
        what = "keyframe" if request.sampling.sampler == "keyframes" else "frame"
        notes.append(f"the segment contains no {what}; the last one before it is used")
    return _with_notes(got, *notes)


def _thinned_note(keyframes: SampledFrames, sampling: Sampling) -> str:
    """Say that a video shows fewer frames than at its sampler's rate, because of `max_frames`; empty if it does not."""
    sampler, shown = find_sampler(sampling.sampler), len(keyframes.picks)
    asked_fps = sampling.fps or sampler.default_fps
    asked_fps = keyframes.fps if asked_fps == EVERY else asked_fps
    if not asked_fps or "max_frames" not in sampler.options:
        return ""
    wanted = math.floor(float(np.ptp(keyframes.time_s)) * min(asked_fps, keyframes.fps or asked_fps)) + 1
    if wanted <= shown + _ROUNDED_AWAY:
        return ""
    return f"{asked_fps:g} frames per second would be {wanted:,} frames; {shown:,} are shown, spread over the video"


def _without_counts(keyframes: SampledFrames) -> SampledFrames:
    """Discard positions and counts that come from a file known to contradict its index."""
    unknown = np.full_like(keyframes.frame_index, UNKNOWN_POSITION)
    return replace(keyframes, frame_index=unknown, total_frames=None)


def _check_truncation(keyframes: SampledFrames, missing: int) -> SampledFrames:
    """Note in `reason` if the file is truncated; it is then as long as the frames that were counted, if they were."""
    if not missing:
        return keyframes
    counted_s = keyframes.total_frames / keyframes.fps if keyframes.total_frames and keyframes.fps else math.inf
    shorter = replace(keyframes, duration_s=min(keyframes.duration_s, counted_s))
    return _with_notes(shorter, f"the file is cut short: its last {missing:,} bytes are missing")


def _without_similar(keyframes: SampledFrames, sampling: Sampling) -> SampledFrames:
    """Drop near-duplicate frames, if requested."""
    if sampling.drop_similar is None:
        return keyframes
    kept = drop_similar(keyframes.images, threshold=sampling.drop_similar)
    row_of = {int(row): new for new, row in enumerate(kept)}
    columns = {name: getattr(keyframes, name)[kept] for name in _COLUMNS}
    stays = np.isin(keyframes.picks, kept)
    return replace(
        keyframes,
        **columns,
        picks=np.array([row_of[row] for row in keyframes.picks[stays].tolist()], np.int64),
        deviation_s=None if keyframes.deviation_s is None else keyframes.deviation_s[stays],
        dropped_as_similar=len(keyframes.images) - len(kept),
    )
