"""Decoding the frames that the model sees, exactly.

Three ways to keyframes, from the shortest to the longest: by the container's index, by seeking, by
decoding all; two to frames anywhere: by GOPs, by decoding all. Each proves what it finds, and where
that fails, the next one is taken.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import SamplingRefusedError
from tasks.domain.passes import routed, taken
from tasks.domain.segment import WHOLE
from tasks.video.by_decoding import extract_by_decoding
from tasks.video.by_gops import extract_by_gops
from tasks.video.by_index import extract_by_index
from tasks.video.by_seeking import extract_by_seeking
from tasks.video.by_timeline import extract_all
from tasks.video.keyframes import UNKNOWN_POSITION
from tasks.video.listing import Listing, list_by_index, list_by_packets
from tasks.video.misled import ContradictedError, KeyframeDamagedError, MisledError
from tasks.video.ranges import SparseFile
from tasks.video.shots import Request
from tasks.video.similar import drop_similar
from tasks.video.table import KeyframeTable, extract_by_table
from tasks.video.verdict import Thresholds, judge
from tasks.video.wholeness import missing_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tasks.domain import Sampling, Segment
    from tasks.video.keyframes import Keyframes
    from tasks.video.limits import Limits
    from tasks.video.ranges import ByteSource
    from tasks.video.table import KnownIndex

    _Way = Callable[[Request], Keyframes]


def extract_keyframes(
    path: Path,
    *,
    sampling: Sampling,
    limits: Limits,
    native: bool = False,
    every: bool = False,
    threads: int = 1,
    segment: Segment = WHOLE,
) -> Keyframes:
    """Decode the frames of a video that the model sees: keyframes, or those of another sampler.

    Every frame is, byte for byte, the one that a full linear decode shows at its time.

    Args:
        path: The video's file.
        sampling: Which frames, and how large; `auto` takes keyframes where they are enough.
        limits: What the video may cost.
        native: Keep frames unscaled and unrotated, as `to_ndarray(format="rgb24")` gives them.
        every: Take every keyframe once instead of `sampling.num_frames` picks.
        threads: Frames decoded at once, where each can be decoded alone.
        segment: The part of the video to choose from.

    Raises:
        VideoMissingError: There is no file.
        VideoEmptyError: The file has no bytes.
        VideoUnreadableError: FFmpeg cannot open it.
        NoVideoStreamError: There is no video stream in it.
        NoFramesError: No frame could be decoded.
        SamplingRefusedError: The sampler cannot choose frames of this video.
        VideoTooLargeError: The file or a frame exceeds the limits.
    """
    started = time.perf_counter()
    listing = _list_keyframes(path, limits) if sampling.sampler == "auto" else None
    if listing:
        sampling = _routed(sampling, listing, segment)
    request = Request(
        source=path,
        sampling=sampling,
        limits=limits,
        native=native,
        every=every,
        threads=threads,
        segment=segment,
    )
    keyframes = _thinned(_placed(_by_shortest_way(request), request), sampling)
    if keyframes.method != "index":  # every sampler tells of a video's keyframes what `auto` goes by
        keyframes = _listed(keyframes, listing or _list_keyframes(path, limits))
    with path.open("rb") as file:
        keyframes = _judged(keyframes, missing_bytes(file, path.stat().st_size))
    return replace(
        keyframes,
        frames_decoded=request.tally.frames,
        sampler=sampling.sampler,
        decode_ms=(time.perf_counter() - started) * 1e3,
    )


def extract_by_ranges(
    source: ByteSource,
    *,
    sampling: Sampling,
    limits: Limits,
    known: KnownIndex = (),
    threads: int = 1,
    segment: Segment = WHOLE,
) -> tuple[Keyframes, KnownIndex]:
    """Decode the keyframes of a remote video that the model sees, reading little more than them.

    Args:
        source: The video's bytes.
        sampling: How many frames, and how large.
        limits: What the video may cost.
        known: The index that an earlier call gave back, of the same bytes.
        threads: Frames decoded at once.
        segment: The part of the video to choose from.

    Returns:
        The keyframes, and what tells where the others are.

    Raises:
        MisledError: Parts are not enough; get the whole file and call `extract_keyframes`.
        VideoError: As `extract_keyframes` does.
        Exception: Whatever `source.read` raises.
    """
    is_auto = sampling.sampler == "auto"
    if sampling.sampler != "keyframes" and not is_auto:
        raise MisledError("frames between keyframes were asked for")
    thresholds = Thresholds.of(sampling)
    sampling = taken(sampling, "keyframes") if is_auto else sampling
    started = time.perf_counter()
    table = known if isinstance(known, KeyframeTable) else None
    file = SparseFile(source, known if isinstance(known, tuple) else ())
    request = Request(source=file, sampling=sampling, limits=limits, threads=threads, segment=segment)
    try:
        if table:
            keyframes = _judged(extract_by_table(request, file, table), table.missing_bytes)
        else:
            keyframes = extract_by_index(request)
            keyframes = _judged(keyframes, missing_bytes(file, source.size_bytes))
        if is_auto:
            _require_good(keyframes, thresholds)
    except Exception as error:  # noqa: BLE001 - whatever the source raised
        cause = file.failure or error  # FFmpeg may have taken a failure for the end of the file
        if isinstance(cause, MisledError):
            cause.bytes_fetched, cause.frames_decoded = file.bytes_fetched, request.tally.frames
        raise cause from None
    decode_ms = (time.perf_counter() - started - file.wait_s) * 1e3
    keyframes = replace(
        _thinned(_placed(keyframes, request), sampling),
        decode_ms=decode_ms,
        frames_decoded=request.tally.frames,
        fetch_ms=file.wait_s * 1e3,
        bytes_fetched=file.bytes_fetched,
        parts=file.extents,
    )
    return keyframes, table or file.index


def _by_shortest_way(request: Request) -> Keyframes:
    reasons: dict[str, None] = {}  # each once, in order
    is_contradicted = False
    shorter, longest = _ways(request)
    for way in shorter:
        try:
            got = replace(way(request), reason="; ".join(reasons))
        except MisledError as error:
            reasons[str(error)] = None
            is_contradicted |= isinstance(error, ContradictedError)
            if isinstance(error, KeyframeDamagedError):
                break
        else:
            return _uncounted(got) if is_contradicted else got
    got = longest(request)
    return replace(got, reason="; ".join([*reasons, *filter(None, [got.reason])]))


def _require_good(keyframes: Keyframes, thresholds: Thresholds) -> None:
    if not keyframes.judged(thresholds).is_good:
        raise MisledError("keyframes are not enough")


def _list_keyframes(path: Path, limits: Limits) -> Listing:
    return list_by_index(path, limits) or list_by_packets(path, limits) or Listing(None, 0.0)


def _listed(keyframes: Keyframes, listing: Listing) -> Keyframes:
    if listing.times_ms is None:
        return replace(keyframes, are_keyframes_listed=False)
    return replace(keyframes, keyframe_ms=listing.times_ms, first_ms=listing.first_ms)


def _routed(sampling: Sampling, listing: Listing, segment: Segment) -> Sampling:
    """Choose what `auto` takes, before anything is decoded."""
    verdict = judge(
        listing.times_ms,
        first_ms=listing.first_ms,
        keyframes=0,
        duration_s=listing.duration_s,
        thresholds=Thresholds.of(sampling),
        segment=segment,
    )
    return routed(sampling, is_good=verdict.is_good)


def _placed(keyframes: Keyframes, request: Request) -> Keyframes:
    """Say so where no frame lies in the segment.

    Raises:
        SamplingRefusedError: The segment lies behind the video's end.
    """
    start_s, duration_s = request.segment.start_s or 0.0, keyframes.duration_s
    if request.tally.is_outside and 0 < duration_s <= start_s:
        raise SamplingRefusedError(
            f"The segment starts at {start_s:g} s, and the video ends at {duration_s:g} s; correct start_s.",
        )
    if not request.tally.is_outside:
        return keyframes
    what = "keyframe" if request.sampling.sampler == "keyframes" else "frame"
    note = f"the segment holds no {what}: the last one before it is shown"
    return replace(keyframes, reason="; ".join(filter(None, [note, keyframes.reason])))


def _uncounted(keyframes: Keyframes) -> Keyframes:
    """Leave unknown what was counted in a file that has contradicted itself."""
    unknown = np.full_like(keyframes.frame_index, UNKNOWN_POSITION)
    return replace(keyframes, frame_index=unknown, total_frames=None)


def _ways(request: Request) -> tuple[tuple[_Way, ...], _Way]:
    """Name the ways to the frames that were asked for: the shorter ones, and the one that always leads there."""
    if request.sampling.sampler == "keyframes" or request.every:
        return (extract_by_index, extract_by_seeking), extract_by_decoding
    return (extract_by_gops,), extract_all


def _judged(keyframes: Keyframes, missing: int) -> Keyframes:
    """Say so where the file is cut short."""
    if not missing:
        return keyframes
    note = f"the file is cut short: its last {missing:,} bytes are missing"
    return replace(keyframes, reason="; ".join(filter(None, [note, keyframes.reason])))


def _thinned(keyframes: Keyframes, sampling: Sampling) -> Keyframes:
    """Drop frames that show nothing new, where that was asked for."""
    if sampling.drop_similar is None:
        return keyframes
    kept = drop_similar(keyframes.images, threshold=sampling.drop_similar)
    row_of = {int(row): new for new, row in enumerate(kept)}
    columns = {name: getattr(keyframes, name)[kept] for name in ("images", "pts", "time_s", "frame_index")}
    stays = np.isin(keyframes.picks, kept)
    return replace(
        keyframes,
        **columns,
        is_keyframe=keyframes.is_keyframe[kept],
        picks=np.array([row_of[row] for row in keyframes.picks[stays].tolist()], np.int64),
        deviation_s=None if keyframes.deviation_s is None else keyframes.deviation_s[stays],
        dropped_as_similar=len(keyframes.images) - len(kept),
    )
