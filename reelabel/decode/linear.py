"""The linear decode, which is the reference: one pass lists all frames, another takes the wanted ones."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers import mpegts
from reelabel.containers.demux import decode_all, open_video
from reelabel.containers.stream_properties import frame_rate, header_info
from reelabel.decode.canvas import Canvas, Decoded, FrameInfo, frames_of
from reelabel.decode.read_index import scan_packets, try_scan
from reelabel.errors import FallbackRequired
from reelabel.index import NO_PTS, Int64s, VideoIndex
from reelabel.output_order import ClockReader, play_times
from reelabel.sources.video_file import VideoFile

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from reelabel.decode.render import View
    from reelabel.decode.run_decoder import DecodeStats
    from reelabel.options import Limits
    from reelabel.sources.sparse_file import SparseFile


class LinearVideo:
    """A video that is decoded from its beginning: once to list its frames, and once more to take some of them.

    Frames taken in decode order need only one pass, however many calls ask for them; an earlier frame begins another.
    """

    def __init__(
        self, source: VideoFile | SparseFile, limits: Limits, stats: DecodeStats, *, by_packets: bool = False
    ) -> None:
        """List the frames, by decoding them; with `by_packets`, by demuxing, if packets announce them all."""
        self._source, self._limits, self._stats = source, limits, stats
        self._listed, self._pass = ExitStack(), ExitStack()
        scanned = try_scan(source, limits, all_shown=True) if by_packets else None
        if scanned is None:
            with open_video(source, limits) as opened:
                scanned = scan_frames(*opened, limits)
            stats.add(len(scanned.pts))
        self._begin_pass()
        self._opened = self._listed.enter_context(open_video(source, limits))  # of which nothing is decoded
        self.index = replace(scanned, info=header_info(*self._opened))

    def close(self) -> None:
        self._pass.close()
        self._listed.close()

    @cached_property
    def announced(self) -> VideoIndex | None:
        """The frames that the packets announce; None if packets do not determine them.

        They do not where frames are shown in another order than that of their timestamps.
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
        """How times differ from timestamps, and from when on frames are not shown; empty if neither applies."""
        (container, stream), notes = self._opened, [self.index.note]
        if container.format.name == mpegts.FORMAT and isinstance(self._source, VideoFile):
            later = mpegts.later_stream(self._source, stream.id)
            if later is not None:
                end_s = round(self.index.filled_s(frame_rate(stream)), 3)
                notes.append(
                    f"from {end_s:g} s on, the video goes on in another stream (PID {later}), which is not shown"
                )
        return "; ".join(filter(None, notes))

    def decode(self, indices: Int64s, view: View) -> Decoded:
        """Take some frames, ascending; raise FallbackRequired if one differs from what its packet announced."""
        canvas = Canvas(frames_of(self.index, indices), view, self._limits, lambda: header_info(*self._decoded))
        for info in canvas.wanted:
            if not self._advance_to(info):
                break
            canvas.draw(info, self._frame)
        return canvas.finish(self.index.position[indices], note=self.note)

    def _advance_to(self, info: FrameInfo) -> bool:
        is_announced = self.index.kind == "packets"
        if info.position < self._position:
            self._begin_pass()
        while self._position < info.position:
            decoded = next(self._frames, None)
            if decoded is None:
                if is_announced:
                    raise FallbackRequired("fewer frames are decoded than packets announce")
                return False
            self._frame, _ = decoded
            self._position += 1
            if is_announced and self._frame.pts != self.index.pts[self.index.order[self._position]]:
                raise FallbackRequired("packets do not announce the order of frames")
            self._stats.add(1)
        return True

    def _begin_pass(self) -> None:
        self._pass.close()
        self._decoded = self._pass.enter_context(open_video(self._source, self._limits))
        self._frames = decode_all(*self._decoded, self._limits)
        self._position = -1


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
        info=header_info(container, stream),
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
