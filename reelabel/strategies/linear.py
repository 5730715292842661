"""The reference strategy: a linear decode, once to list all frames and once to take the chosen ones.

A frame that a dense sampler chooses, and the decoder never outputs, is replaced by the next one it does, if that
precedes the next chosen frame, as in vLLM's loaders with `frame_recovery`; or left out with `frame_recovery=False`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers import mpegts
from reelabel.containers.demux import decode_all, open_video
from reelabel.containers.stream_properties import frame_rate, video_info
from reelabel.decode.assemble import assemble_frames, frames_of
from reelabel.decode.packet_scan import scan_file, scan_packets
from reelabel.errors import FallbackRequired, NoFramesError
from reelabel.index import VideoIndex
from reelabel.output_order import ClockReader, play_times
from reelabel.sampled_frames import NO_PTS
from reelabel.sources.video_file import VideoFile
from reelabel.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest, FrameInfo
    from reelabel.index import VideoInfo
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.choose import Chosen
    from reelabel.sources.sparse_file import SparseFile

_NAMED = 60  # of each kind, so that a note stays within the length that a decoding process may send


def extract_linearly(request: ExtractionRequest, video: LinearVideo) -> SampledFrames:
    """Extract chosen frames of a video that is decoded from its beginning.

    Raises:
        VideoError: As `extract_local` does.
    """
    index, note = video.index, ""
    if request.shows_keyframes or request.wanted or video.announced is None:
        chosen = request.choose(index)
    else:
        recovers = request.sampling.frame_recovery is not False
        chosen, note = _map_to_decoded(request.choose(video.announced), video.announced, index, recovers=recovers)
    wanted = frames_of(index, chosen.unique)
    got = assemble_frames(
        request,
        video.describe,
        index=index,
        chosen=chosen,
        wanted=wanted,
        frames=video.take(wanted),
        method="linear",
    )
    return replace(got, reason="; ".join(filter(None, [video.note, note, got.reason])))


class LinearVideo:
    """A video that is decoded from its beginning: once to list its frames, and once more to take some of them.

    Frames that are taken in the order of the decode are taken in one pass, whatever their number; one that lies before
    the last begins another.

    Attributes:
        index: Its frames.
        frames_decoded: Frames output so far.
    """

    def __init__(self, source: VideoFile | SparseFile, limits: Limits, *, by_packets: bool = False) -> None:
        """List the frames, by decoding them; with `by_packets`, by demuxing, if packets announce them all.

        Raises:
            VideoError: As `extract_local` does.
        """
        self._source, self._limits = source, limits
        self._listed, self._pass = ExitStack(), ExitStack()
        self.frames_decoded = 0
        scanned = _announced_frames(source, limits) if by_packets else None
        if scanned is None:
            with open_video(source, limits) as opened:
                scanned = scan_frames(*opened, limits)
            self.frames_decoded = len(scanned.pts)
        self._begin_pass()
        self._opened = self._listed.enter_context(open_video(source, limits))  # of which nothing is decoded
        self.index = replace(scanned, info=video_info(*self._opened))

    def close(self) -> None:
        """Close the video."""
        self._pass.close()
        self._listed.close()

    @cached_property
    def announced(self) -> VideoIndex | None:
        """The frames that its packets announce; None if these do not determine them.

        Nor do they where frames are shown in another order than that of their timestamps.
        """
        pts = self.index.pts
        if (pts == NO_PTS).any() or (np.diff(pts) <= 0).any():
            return None
        try:
            return scan_packets(*self._opened, self._limits, all_shown=False)
        except FallbackRequired:
            return None

    @cached_property
    def note(self) -> str:
        """How times differ from timestamps, and from when on frames are not shown; empty if neither is so."""
        return "; ".join(filter(None, [self.index.note, self._note_of_rest()]))

    def _note_of_rest(self) -> str:
        container, stream = self._opened
        if container.format.name != mpegts.FORMAT or not isinstance(self._source, VideoFile):
            return ""
        later = mpegts.later_stream(self._source, stream.id)
        if later is None:
            return ""
        end_s = round(self.index.filled_s(frame_rate(stream)), 3)
        return f"from {end_s:g} s on, the video goes on in another stream (PID {later}), which is not shown"

    def describe(self) -> VideoInfo:
        """Return the properties of the stream, as they are after the frames taken last."""
        return video_info(*self._decoded)

    def take(self, wanted: Sequence[FrameInfo]) -> Iterator[tuple[FrameInfo, VideoFrame]]:
        """Yield some frames, which ascend; fewer if they do not decode again.

        Raises:
            FallbackRequired: A frame is another than its packet has announced.
        """
        is_announced = self.index.kind == "packets"
        for info in wanted:
            if info.position < self._position:
                self._begin_pass()
            while self._position < info.position:
                decoded = next(self._frames, None)
                if decoded is None:
                    if is_announced:
                        raise FallbackRequired("fewer frames are decoded than packets announce")
                    return
                self._frame, _ = decoded
                self._position += 1
                if is_announced and self._frame.pts != self.index.pts[self.index.order[self._position]]:
                    raise FallbackRequired("packets do not announce the order of frames")
                self.frames_decoded += 1
            yield info, self._frame

    def _begin_pass(self) -> None:
        self._pass.close()
        self._decoded = self._pass.enter_context(open_video(self._source, self._limits))
        self._frames = decode_all(*self._decoded, self._limits)
        self._position = -1


def _announced_frames(source: VideoFile | SparseFile, limits: Limits) -> VideoIndex | None:
    """Return the frames that packets announce, in the order of the decode; None if they do not."""
    try:
        return scan_file(source, limits, all_shown=True)
    except FallbackRequired:
        return None


def scan_frames(container: InputContainer, stream: VideoStream, limits: Limits) -> VideoIndex:
    """Decode all frames of an open video without keeping their pixels, and list them."""
    clock = ClockReader()
    seen = [
        (frame.pts, clock.clock_of(frame.pts), frame.key_frame, is_flagged)
        for frame, is_flagged in decode_all(container, stream, limits, clock)
    ]
    given, clocks = [each[0] for each in seen], [each[1] for each in seen]
    times = play_times(given, clocks, unit_s=float(stream.time_base or 0), fps=frame_rate(stream))
    # Some decoders never flag keyframes. They output one frame per packet, so the packets' flags are used instead.
    are_marked = any(is_marked for *_, is_marked, _ in seen)
    is_keyframe = np.array([is_marked if are_marked else is_flagged for *_, is_marked, is_flagged in seen], np.bool_)
    pts = np.array([NO_PTS if each is None else each for each in given], np.int64)
    times_s, has_pts = times.times_s, pts != NO_PTS
    are_timed = times_s is not None and bool(has_pts[is_keyframe].all())
    ends_s = [float(times_s[end]) if times_s is not None and has_pts.size and has_pts[end] else None for end in (0, -1)]
    frames = np.arange(len(pts))
    return VideoIndex(
        info=video_info(container, stream),
        kind="decode",
        lists="frames",
        pts=pts,
        is_keyframe=is_keyframe,
        is_shown=np.ones(len(pts), np.bool_),
        pos=np.zeros(len(pts), np.int64),
        size=np.zeros(len(pts), np.int64),
        order=frames,
        time_s=times_s,
        position=frames,
        keyframe_s=times_s[is_keyframe] if times_s is not None and are_timed else None,
        keyframes=int(is_keyframe.sum()),
        first_s=ends_s[0],
        last_s=ends_s[1],
        total_frames=len(pts),
        note=times.note,
    )


def _map_to_decoded(
    chosen: Chosen, announced: VideoIndex, decoded: VideoIndex, *, recovers: bool
) -> tuple[Chosen, str]:
    """Map places among the announced frames to places among the decoded ones.

    Returns:
        The mapped choice, and a note on the frames that are missing from it; empty if there are none.

    Raises:
        NoFramesError: Neither the chosen frames nor any replacement could be decoded.
    """
    unique, pts = chosen.unique, announced.pts[announced.order]
    targets, ends = pts[unique], np.append(decoded.pts, np.iinfo(np.int64).max)
    found = np.searchsorted(decoded.pts, targets)
    limits = np.append(targets[1:], pts[-1] + 1) if recovers else targets + 1
    is_found = ends[found] < limits
    if not is_found.any():
        raise NoFramesError("None of the chosen frames can be decoded; the file is probably damaged.")
    rows = np.searchsorted(unique, chosen.places)
    rows, is_shown = rows[is_found[rows]], is_found[rows]
    instants_s = None if chosen.instants_s is None else chosen.instants_s[is_shown]
    is_replaced = is_found & (ends[found] != targets)
    good = np.searchsorted(pts, ends[found[is_replaced]])
    replaced = [f"{broken} by {next_good}" for broken, next_good in zip(unique[is_replaced], good, strict=True)]
    notes = [
        _note("replaced by the next good one", replaced),
        _note("left out", [str(each) for each in unique[~is_found]]),
    ]
    return replace(chosen, places=found[rows], instants_s=instants_s), "; ".join(filter(None, notes))


def _note(fate: str, frames: list[str]) -> str:
    """Name broken frames by their positions among those that the file announces; return an empty note without any."""
    rest = len(frames) - _NAMED
    named = ", ".join(frames[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
    return f"{pluralize(len(frames), 'broken frame')} {fate}: {named}" if frames else ""
