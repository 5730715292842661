"""Frame-exact extraction: the same pixels as a full linear decode, at a fraction of its cost.

The frames are listed by the container's index, else by a pass over all packets, else by a linear decode. By the first
index, keyframes are decoded from their packets alone, other frames from their GOPs; by the second, all from GOPs. Each
result is verified; if that fails, the next index is tried.
"""

from __future__ import annotations

import math
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import av
import numpy as np

from reelabel.containers.demux import check_frame_count
from reelabel.containers.stream_properties import check_frame_times
from reelabel.coverage import CoverageThresholds
from reelabel.decode.decoder import Decoder, Way, open_decoder
from reelabel.decode.render import View
from reelabel.decode.run_decoder import MAX_PREROLL_GOPS
from reelabel.errors import FallbackRequired, NoFramesError, SamplingRefusedError, as_video_errors, unreadable
from reelabel.index import UNKNOWN_POSITION, Lists, VideoIndex
from reelabel.options import Limits
from reelabel.result import Frames, Selection
from reelabel.sampling.choose import Chosen, Wanted, choose
from reelabel.sampling.options import Sampling, resolve_auto
from reelabel.sampling.registry import find_sampler
from reelabel.sampling.similar import drop_similar
from reelabel.sampling.spec import EVERY
from reelabel.segment import WHOLE, Segment, Windows
from reelabel.sources.video_file import VideoFile, open_video_file
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reelabel.decode.canvas import Decoded
    from reelabel.sources.sparse_file import ByteSource, CachedRange

Method: TypeAlias = Literal["index", "seek", "linear"]

_COLUMNS = ("pts", "time_s", "frame_index", "is_keyframe")
_DEFAULT_SAMPLING = Sampling()
_DEFAULT_LIMITS = Limits()
_ROUNDED_AWAY = 2  # frames that samplers of a rate lose by rounding to whole steps and pairs
_NAMED = 60  # broken frames in a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to extract from a video.

    Attributes:
        sampling: Which frames to decode, and at what size; `auto` uses keyframes where they cover the video.
        windows: Parts of the segment that a dense sampler samples from; empty for all of it.
        skip_loop_filter: Skip the loop filter where GOPs are decoded: faster, but not exact, so not for frames that a
            model sees.
        wanted: Frames by position or time, in place of those that a sampler would choose.
    """

    sampling: Sampling = _DEFAULT_SAMPLING
    limits: Limits = _DEFAULT_LIMITS
    segment: Segment = WHOLE
    as_stored: bool = False
    windows: Windows = ()
    skip_loop_filter: bool = False
    wanted: Wanted | None = None

    @property
    def shows_keyframes(self) -> bool:
        """Whether only keyframes are shown, which decode by themselves."""
        return self.sampling.sampler == "keyframes"

    @property
    def view(self) -> View:
        """How frames are drawn."""
        return View.of(self.sampling, as_stored=self.as_stored, skip_loop_filter=self.skip_loop_filter)

    def choose(self, index: VideoIndex) -> Chosen:
        """Choose frames; raises as `reelabel.sampling.choose.choose` does, and if the index lists too many."""
        check_frame_count(len(index.order), self.limits)  # a malicious video may have made the index
        with as_video_errors():
            return choose(index, self.sampling, self.segment, windows=self.windows, wanted=self.wanted)


@dataclass(slots=True, kw_only=True)
class Progress:
    """How the frames of a video are found, remembered over several extractions.

    Attributes:
        ways: The ways to try, in order; after one linear decode was needed, only that.
        notes: Why faster ways failed; an ordered set.
        in_pieces: Whether the extractions are of consecutive segments.
    """

    ways: tuple[Way, ...] = ("container", "packets", "decode")
    notes: dict[str, None] = field(default_factory=dict)
    in_pieces: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether the video is decoded from its beginning."""
        return "container" not in self.ways


def extract_local(video: Path | str | bytes | VideoFile, *, threads: int = 1, **options: Any) -> Frames:  # noqa: ANN401
    """Decode sampled frames of a local file, or the bytes of a video, in this process; options are those of `Request`.

    For untrusted video use a `DecodePool`.

    Raises:
        ValueError: The segment is not valid.
        VideoError: The video is missing, empty, too large, refused or unreadable, or the sampler refuses it.
    """
    request = Request(**options)
    request.segment.check_valid()
    with open_video_file(video) as file, closing(open_decoder(file, request.limits, threads=threads)) as decoder:
        try:
            return extract(decoder, request, Progress())
        except av.FFmpegError as error:
            raise unreadable(error) from None


def extract_ranges(
    source: ByteSource,
    *,
    known: tuple[CachedRange, ...] = (),
    threads: int = 1,
    **options: Any,  # noqa: ANN401
) -> tuple[Frames, tuple[CachedRange, ...]]:
    """Decode sampled frames of a remote video, fetching little more than the index and what those frames need.

    `known` are the ranges that an earlier call returned for the same bytes: those that hold the header. Other options
    are those of `Request`.

    Raises as `extract_local` and `source.read` do, and FallbackRequired if ranges do not suffice: download the file.
    """
    request = Request(**options)
    with closing(open_decoder(source, request.limits, threads=threads, known=known)) as decoder:
        return extract_remotely(decoder, request)


def extract_remotely(decoder: Decoder, request: Request) -> tuple[Frames, tuple[CachedRange, ...]]:
    """Extract from a remote video by its ranges, as `extract_ranges` does, with an open decoder."""
    got = extract(decoder, request, Progress(ways=("container",)))
    fetched = decoder.ranges.bytes_fetched if decoder.ranges else 0
    return got.with_selection(fetch_ms=_wait_s(decoder) * 1e3, bytes_fetched=fetched), decoder.known


def _wait_s(decoder: Decoder) -> float:
    return decoder.ranges.wait_s if decoder.ranges else 0.0


def extract(decoder: Decoder, request: Request, progress: Progress) -> Frames:
    """Extract frames by the fastest way that is exact; raise FallbackRequired if none of `progress.ways` is."""
    started, decoded_before = time.perf_counter() - _wait_s(decoder), decoder.frames_decoded
    listed: VideoIndex | None = None
    if request.sampling.sampler == "auto":
        listed = _list_keyframes(decoder, progress)
        is_good = listed.coverage(CoverageThresholds.of(request.sampling), request.segment).is_good
        request = replace(request, sampling=resolve_auto(request.sampling, is_good=is_good))
    got, is_empty, missing = _extract_exactly(decoder, request, progress)
    if got.method != "index" and not decoder.ranges:  # so that keyframe times do not depend on the sampler
        with suppress(FallbackRequired):
            listed = listed or decoder.list_keyframes()
        if listed and listed.is_listed:  # else a linear decode has found them itself
            got = got.with_selection(keyframe_ms=listed.keyframe_ms, first_ms=listed.first_ms)
    with as_video_errors():
        got = _without_similar(_note_segment_and_rate(got, request, is_empty=is_empty), request.sampling)
        got = _note_truncation(got, missing)
        check_frame_times(got.selection, request.limits)
    return got.with_selection(
        frames_decoded=decoder.frames_decoded - decoded_before,
        sampler="" if request.wanted else request.sampling.sampler,
        decode_ms=max(0.0, time.perf_counter() - _wait_s(decoder) - started) * 1e3,
    )


def _list_keyframes(decoder: Decoder, progress: Progress) -> VideoIndex:
    try:
        return decoder.list_keyframes()
    except FallbackRequired as error:
        if progress.ways[-1] != "decode":
            raise
        if progress.in_pieces and not progress.is_linear:
            progress.ways, progress.notes = ("decode",), {str(error): None}
    return decoder.list_frames("decode", "frames")


def _extract_exactly(decoder: Decoder, request: Request, progress: Progress) -> tuple[Frames, bool, int]:
    """Return the frames, whether the segment has none of its own, and how many bytes the file lacks."""
    ways, notes, is_contradicted = [*progress.ways], dict(progress.notes), False
    while True:
        way = ways.pop(0)
        if way == "decode":
            progress.ways, progress.notes = ("decode",), notes
        try:
            got, is_empty, missing = _extract_in_way(way, decoder, request, progress)
        except FallbackRequired as error:
            ways = ["decode"] if error.linear_only and "decode" in ways else ways
            if not ways or (error.linear_only and "decode" not in ways):
                raise
            # Note what is wrong with the packets if no index lists frames, and with the index if no GOP decodes.
            is_news = request.shows_keyframes or error.linear_only or way == "packets"
            if is_news and not (is_contradicted and error.linear_only):
                notes[str(error)] = None
            is_contradicted |= is_news and error.index_is_wrong
        else:
            if is_contradicted and got.method != "linear":
                unknown = np.full_like(got.selection.frame_index, UNKNOWN_POSITION)
                got = got.with_selection(frame_index=unknown, total_frames=None)
            return _with_notes(got, first=notes), is_empty, missing


def _extract_in_way(way: Way, decoder: Decoder, request: Request, progress: Progress) -> tuple[Frames, bool, int]:
    lists: Lists = "keyframes" if request.shows_keyframes and way == "container" else "frames"
    index = decoder.list_frames(way, lists, request.segment, in_pieces=progress.in_pieces)
    chosen, note = _choose(decoder, request, way, index)
    try:
        decoded = decoder.decode(chosen.unique, request.view)
    except FallbackRequired as error:
        if not error.linear_only or index.is_whole:
            raise
        # The frames of the segment may depend on earlier GOPs: read these, too.
        with as_video_errors():
            widened = _widened(request.segment, index)
        index = decoder.list_frames(way, lists, widened)
        chosen, note = _choose(decoder, request, way, index)
        decoded = decoder.decode(chosen.unique, request.view)
    methods: dict[Way, Method] = {"container": "index" if lists == "keyframes" else "seek", "packets": "seek"}
    with as_video_errors():
        got = _assemble(request, index, chosen, decoded, methods.get(way, "linear"))
    return _with_notes(got, note), chosen.is_empty, decoded.missing_bytes


def _choose(decoder: Decoder, request: Request, way: Way, index: VideoIndex) -> tuple[Chosen, str]:
    """Choose frames; also return a note on those that do not decode."""
    if way == "decode" and not request.shows_keyframes and request.wanted is None:
        try:
            announced = decoder.list_announced()
        except FallbackRequired:
            return request.choose(index), ""
        recovers = request.sampling.frame_recovery is not False
        with as_video_errors():
            return _map_to_decoded(request.choose(announced), announced, index, recovers=recovers)
    chosen = request.choose(index)
    if way in {"container", "packets"} and index.lists == "frames":
        first = index.keyframe_indices[:1]
        if not first.size or chosen.unique[0] < first[0]:  # an edit list hides the keyframe that they depend on
            raise FallbackRequired("frames precede the first presented keyframe")
    return chosen, ""


def _widened(segment: Segment, index: VideoIndex) -> Segment:
    assert index.keyframe_s is not None
    assert index.first_s is not None
    first_s = float(index.pts[0] * float(index.info.time_base))
    earlier = max(0, int(np.searchsorted(index.keyframe_s, first_s)) - MAX_PREROLL_GOPS)
    return segment._replace(start_s=float(index.keyframe_s[earlier] - index.first_s))


def _assemble(request: Request, index: VideoIndex, chosen: Chosen, decoded: Decoded, method: Method) -> Frames:
    if chosen.is_empty:
        _check_start(request.segment, index.ends_s(decoded.info))
    picks = np.searchsorted(chosen.unique, chosen.indices)
    selection = Selection(
        pts=decoded.pts,
        time_s=decoded.time_s,
        frame_index=decoded.position,
        is_keyframe=decoded.is_keyframe,
        picks=picks,
        deviation_s=None if chosen.instants_s is None else decoded.time_s[picks] - chosen.instants_s,
        keyframes_in_file=index.keyframes,
        keyframe_ms=index.keyframe_ms,
        first_ms=index.first_ms,
        total_frames=index.total_frames if decoded.is_counted else None,
        fps=decoded.info.fps,
        duration_s=index.length_s(decoded.info),
        pixel_aspect=decoded.info.pixel_aspect,
        native_width_px=decoded.native_width_px,
        native_height_px=decoded.native_height_px,
        orientation=decoded.orientation,
        segment=request.segment,
        starts_s=chosen.starts_s,
        first_s=index.start_s,
        method=method,
        note=decoded.note,
        decode_ms=0.0,
    )
    return replace(Frames.of(decoded.images, selection), header=decoded.info)


def _map_to_decoded(
    chosen: Chosen, announced: VideoIndex, decoded: VideoIndex, *, recovers: bool
) -> tuple[Chosen, str]:
    """Map indices among the announced frames to indices among the decoded ones.

    Returns the mapped choice, and a note on the frames that are missing from it; empty if there are none.
    """
    unique, pts = chosen.unique, announced.pts[announced.order]
    targets, ends = pts[unique], np.append(decoded.pts, np.iinfo(np.int64).max)
    found = np.searchsorted(decoded.pts, targets)
    limits = np.append(targets[1:], pts[-1] + 1) if recovers else targets + 1
    is_found = ends[found] < limits
    if not is_found.any():
        raise NoFramesError("None of the chosen frames can be decoded; the file is probably damaged.")
    rows = np.searchsorted(unique, chosen.indices)
    rows, is_shown = rows[is_found[rows]], is_found[rows]
    instants_s = None if chosen.instants_s is None else chosen.instants_s[is_shown]
    is_replaced = is_found & (ends[found] != targets)
    good = np.searchsorted(pts, ends[found[is_replaced]])
    replaced = [f"{broken} by {next_good}" for broken, next_good in zip(unique[is_replaced], good, strict=True)]
    notes = [
        _note_frames("replaced by the next good one", replaced),
        _note_frames("left out", [str(each) for each in unique[~is_found]]),
    ]
    return replace(chosen, indices=found[rows], instants_s=instants_s), "; ".join(filter(None, notes))


def _note_frames(fate: str, frames: list[str]) -> str:
    rest = len(frames) - _NAMED
    named = ", ".join(frames[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
    return f"{pluralize(len(frames), 'broken frame')} {fate}: {named}" if frames else ""


def _with_notes(got: Frames, *notes: str, first: Iterable[str] = ()) -> Frames:
    return got.with_selection(note="; ".join(filter(None, [*first, got.note, *notes])))


def _check_start(segment: Segment, ends_s: float) -> None:
    start_s = segment.start_s or 0.0
    if 0 < ends_s <= start_s:
        raise SamplingRefusedError(
            f"The segment starts at {start_s:g} s, but the video ends at {ends_s:g} s; correct start_s."
        )


def _note_segment_and_rate(got: Frames, request: Request, *, is_empty: bool) -> Frames:
    """Note if no frame lies in the segment, and if `max_frames` does not allow the rate."""
    notes = [_thinned_note(got.selection, request.sampling)]
    if is_empty:
        what = "keyframe" if request.sampling.sampler == "keyframes" else "frame"
        notes.append(f"no {what} in the segment; using the last one before it")
    return _with_notes(got, first=notes)


def _thinned_note(got: Selection, sampling: Sampling) -> str:
    """Return a note if `max_frames` limits the frames to fewer than the sampler's rate asks for; else empty."""
    sampler, shown = find_sampler(sampling.sampler), len(got.picks)
    asked_fps = sampling.fps or sampler.default_fps
    asked_fps = got.fps if asked_fps == EVERY else asked_fps
    if not asked_fps or "max_frames" not in sampler.options:
        return ""
    wanted = math.floor(float(np.ptp(got.time_s)) * min(asked_fps, got.fps or asked_fps)) + 1
    if wanted <= shown + _ROUNDED_AWAY:
        return ""
    return f"{asked_fps:g} frames per second would be {wanted:,} frames; {shown:,} are shown, spread over the video"


def _note_truncation(got: Frames, missing: int) -> Frames:
    """Note if the file is truncated; its duration is then that of the counted frames, if they were counted."""
    if not missing:
        return got
    known = got.selection
    counted_s = known.total_frames / known.fps if known.total_frames and known.fps else math.inf
    shorter = got.with_selection(duration_s=min(known.duration_s, counted_s))
    return _with_notes(shorter, first=[f"the file is cut short: its last {missing:,} bytes are missing"])


def _without_similar(got: Frames, sampling: Sampling) -> Frames:
    if sampling.drop_similar is None:
        return got
    known, kept = got.selection, drop_similar(got.unique, threshold=sampling.drop_similar)
    row_of = {int(row): new for new, row in enumerate(kept)}
    columns = {name: getattr(known, name)[kept] for name in _COLUMNS}
    stays = np.isin(known.picks, kept)
    selection = replace(
        known,
        **columns,
        picks=np.array([row_of[row] for row in known.picks[stays].tolist()], np.int64),
        deviation_s=None if known.deviation_s is None else known.deviation_s[stays],
        dropped_as_similar=len(known.pts) - len(kept),
    )
    return replace(Frames.of(got.unique[kept], selection), header=got.header)
