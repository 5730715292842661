"""Estimates the cost of extracting a clip, whole or in chunks, from its index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers.stream_properties import check_duration
from reelabel.coverage import CoverageThresholds
from reelabel.decode.gops import spans_to_decode
from reelabel.errors import JobError, SamplingRefusedError, VideoUnreadableError
from reelabel.sampling.options import resolve_auto
from reelabel.sampling.registry import choose_indices, find_sampler
from reelabel.sampling.spec import EVERY, VideoProperties
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import select_segment
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.domain.chunks import cut_segment
from tasks.domain.passes import choose_pass, sampling_of_pass
from tasks.survey.read import SeenClip

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.coverage import KeyframeCoverage
    from reelabel.index import VideoIndex
    from reelabel.options import Limits
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from tasks.frame_cache.look import IndexedVideo
    from tasks.survey.clips import Clip

_INDEX_BYTES = 32 * 1024  # size of a header and an index, unless known to be larger


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCost:
    coverage: KeyframeCoverage
    is_dense: bool  # whether a dense sampler is used for any of its jobs
    frames: int | None  # frames to decode; None if unknown
    stored: int | None  # frames in its frame files; None if unknown
    bytes_read: int


def cost_of(clip: Clip, seen: IndexedVideo, sampling: Sampling) -> ClipCost:
    """Estimate what a run reads and decodes for a clip whose frames are not cached, without escalations."""
    coverage = seen.index.coverage(CoverageThresholds.of(sampling), clip.segment)
    samplings = dict.fromkeys(passes_of(clip, sampling, is_good=coverage.is_good))
    parts = [_cost(seen, each, clip.segment) for each in samplings]
    frames, stored = ([part[at] for part in parts] for at in (0, 1))
    return ClipCost(
        coverage=coverage,
        is_dense=any(each.sampler != "keyframes" for each in samplings),
        frames=None if None in frames else sum(filter(None, frames)),
        stored=None if None in stored else sum(filter(None, stored)),
        bytes_read=max(part[2] for part in parts) if seen.is_whole_read else sum(part[2] for part in parts),
    )


def passes_of(clip: Clip, sampling: Sampling, *, is_good: bool) -> list[Sampling]:
    """Return the sampling for each of a clip's tags, with `auto` resolved by the clip's coverage."""
    shown = [sampling_of_pass(sampling, choose_pass(sampling, tags)) for tags in clip.tags]
    return [resolve_auto(each, is_good=is_good) if each.sampler == "auto" else each for each in shown]


def _cost(seen: IndexedVideo, sampling: Sampling, segment: Segment) -> tuple[int | None, int | None, int]:
    index, whole = seen.index, seen.info.size_bytes
    if not index.is_listed:
        return index.info.frames, _wanted(sampling, index.info.frames), whole
    if sampling.sampler == "keyframes":
        inside = select_segment(_times_s(index), segment, first_s=0.0).numbers
        picks = inside[sorted(set(pick_evenly(len(inside), _count(sampling, len(inside)))))]
        is_whole_read = seen.is_whole_read or index.lists == "frames"
        read = whole if is_whole_read else _INDEX_BYTES + int(index.size[picks].sum())
        return len(picks), len(picks), min(read, whole)
    return _dense_cost(seen, sampling, segment)


def _dense_cost(seen: IndexedVideo, sampling: Sampling, segment: Segment) -> tuple[int | None, int | None, int]:
    index, info, whole = seen.index, seen.index.info, seen.info.size_bytes
    known = index.total_frames or info.frames
    if not known or not info.duration_s:
        return None, None, whole
    rate = known / info.duration_s
    start_s = segment.start_s or 0.0
    length_s = min(info.duration_s, segment.end_s or info.duration_s) - start_s
    frames = max(1, round(rate * length_s))
    width_px, height_px = info.shown_size
    stream = VideoProperties(
        total_frames=frames,
        fps=info.fps,
        duration_s=frames / info.fps if info.fps else 0.0,  # as a run has it
        width_px=width_px,
        height_px=height_px,
    )
    if find_sampler(sampling.sampler).needs_question:  # frames of the whole video are embedded before it selects some
        return frames, _wanted(sampling, frames), whole
    try:
        chosen = np.unique(choose_indices(sampling, stream))
    except SamplingRefusedError:
        return 0, 0, _INDEX_BYTES
    starts = np.unique(np.rint(_times_s(index) * rate).astype(np.int64).clip(0))
    keyframes = [0, *starts[starts > 0].tolist()]
    spans = spans_to_decode((chosen + round(rate * start_s)).tolist(), keyframes)
    decoded = sum(last - first + 1 for first, last in spans)
    read = whole if seen.is_whole_read else _INDEX_BYTES + int(whole * min(1.0, decoded / known))
    return decoded, len(chosen), min(read, whole)


def _times_s(index: VideoIndex) -> npt.NDArray[np.float64]:
    assert index.keyframe_s is not None
    first_s = float(index.keyframe_s[0])
    times_s: npt.NDArray[np.float64] = index.keyframe_s - min(
        first_s, first_s if index.first_s is None else index.first_s
    )
    return times_s


def _count(sampling: Sampling, available: int) -> int:
    return available if sampling.num_frames == EVERY else sampling.num_frames


def _wanted(sampling: Sampling, available: int | None) -> int | None:
    return None if available is None else min(available, _count(sampling, available))


_MAX_ESTIMATED = 32  # chunks per clip; the others are assumed to cost as much on average


def stated_length_s(seen: IndexedVideo, limits: Limits) -> float:
    """Return the length that a video states, or else the time of its last keyframe.

    The last chunk extends to the video's end, wherever that is.

    Raises:
        VideoTooLargeError: It is longer than the limit.
        VideoUnreadableError: Neither is known.
    """
    index = seen.index
    length_s = index.info.duration_s
    if length_s <= 0 and index.keyframe_s is not None and index.keyframe_s.size:
        length_s = float(index.keyframe_s[-1] - (index.first_s or 0.0))
    check_duration(length_s, limits)
    if length_s <= 0:
        raise VideoUnreadableError(
            f"{redact_uri(seen.info.uri)} does not state its length, so it cannot be cut into chunks; remux it "
            "(ffmpeg -i IN -c copy OUT.mp4), or ask about it without chunk_s."
        )
    return length_s


def cut_seen(each: SeenClip, *, chunk_s: float, limits: Limits) -> SeenClip:
    """Return a surveyed clip with its chunks, as a run cuts them, or with the failure if it cannot be cut."""
    if each.seen is None:
        return each
    try:
        with failing_alone(f"Cutting {redact_uri(each.clip.uri)}"):
            length_s = stated_length_s(each.seen, limits)
            return replace(each, chunks=cut_segment(each.clip.segment, length_s=length_s, chunk_s=chunk_s))
    except JobError as error:
        return SeenClip(clip=each.clip, code=error.code, message=error.message)


def cost_of_chunks(each: SeenClip, sampling: Sampling) -> ClipCost | None:
    """Estimate what a run reads and decodes for a clip, in its chunks if it has some; None if it cannot be used."""
    if each.seen is None:
        return None
    whole = cost_of(each.clip, each.seen, sampling)
    if len(each.chunks) <= 1:
        return whole
    picked = pick_evenly(len(each.chunks), min(_MAX_ESTIMATED, len(each.chunks)))
    parts = [cost_of(replace(each.clip, segment=each.chunks[at]), each.seen, sampling) for at in picked]
    scale = len(each.chunks) / len(parts)

    def total(values: list[int | None]) -> int | None:
        return None if None in values else round(scale * sum(filter(None, values)))

    read = [part.bytes_read for part in parts]
    return replace(
        whole,
        is_dense=any(part.is_dense for part in parts),
        frames=total([part.frames for part in parts]),
        stored=total([part.stored for part in parts]),
        bytes_read=max(read) if each.seen.is_whole_read else round(scale * sum(read)),
    )
