"""The reference strategy: a linear decode, once to list all frames and once to take the chosen ones."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from reelabel.containers import mpegts
from reelabel.containers.demux import decode_all, open_video
from reelabel.containers.stream_properties import StreamProperties, frame_rate
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.errors import FallbackRequired
from reelabel.output_order import ClockReader, PlayTimes, play_times
from reelabel.sources.video_file import VideoFile
from reelabel.strategies.seek import list_frames, list_packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.sparse_file import SparseFile


class LinearVideo:
    """A video that is decoded from its beginning: once to list its frames, and once more to take some of them.

    Frames that are taken in the order of the decode are taken in one pass, whatever their number; one that lies before
    the last begins another.

    Attributes:
        shown: Its frames, in the order of the decode.
        times: When these are shown.
        frames_decoded: Frames output so far.
    """

    def __init__(self, source: VideoFile | SparseFile, limits: Limits) -> None:
        """List the frames.

        Raises:
            VideoError: As `extract_keyframes` does.
        """
        self.frames_decoded = 0
        self._source, self._limits = source, limits
        with open_video(source, limits) as opened:
            self.shown, self.times = scan_frames(*opened, limits)
        self.frames_decoded += len(self.shown)
        self._listed, self._pass = ExitStack(), ExitStack()
        self._begin_pass()

    def close(self) -> None:
        """Close the video."""
        self._pass.close()
        self._listed.close()

    @cached_property
    def pts(self) -> list[int | None]:
        """PTS of its frames."""
        return [info.pts for info in self.shown]

    @cached_property
    def opened(self) -> tuple[InputContainer, VideoStream]:
        """Its container and its stream, of which nothing is decoded."""
        return self._listed.enter_context(open_video(self._source, self._limits))

    @cached_property
    def announced(self) -> list[int] | None:
        """PTS of the frames that its packets announce, ascending; None if these do not determine them.

        Nor do they where frames are shown in another order than that of their timestamps.
        """
        if any(pts is None or following is None or following <= pts for pts, following in pairwise(self.pts)):
            return None
        try:
            pts, _ = list_frames(list_packets(*self.opened, self._limits))
        except FallbackRequired:
            return None
        return [int(each) for each in pts]

    @cached_property
    def summary(self) -> IndexSummary:
        """What is known of its frames as a whole."""
        keyframes = [info for info in self.shown if info.is_keyframe]
        are_timed = all(info.pts is not None and info.time_s is not None for info in keyframes)
        ends_s = [None if info.pts is None else info.time_s for info in (*self.shown[:1], *self.shown[-1:])]
        return IndexSummary(
            keyframes=len(keyframes),
            frames=len(self.shown),
            keyframe_s=np.array([info.time_s for info in keyframes], np.float64) if are_timed else None,
            first_s=ends_s[0] if ends_s else None,
            last_s=ends_s[-1] if ends_s else None,
            is_retimed=bool(self.times.note),
        )

    @cached_property
    def note(self) -> str:
        """How times differ from timestamps, and from when on frames are not shown; empty if there is nothing to say."""
        return "; ".join(filter(None, [self.times.note, self._note_of_rest()]))

    def _note_of_rest(self) -> str:
        container, stream = self.opened
        if container.format.name != mpegts.FORMAT or not isinstance(self._source, VideoFile):
            return ""
        later = mpegts.later_stream(self._source, stream.id)
        if later is None:
            return ""
        end_s = replace(self.summary, is_retimed=True).duration_s(StreamProperties.of(container, stream))
        return f"from {round(end_s, 3):g} s on, the video goes on in another stream (PID {later}), which is not shown"

    def describe(self) -> StreamProperties:
        """Return the properties of the stream, as they are after the frames taken last."""
        return StreamProperties.of(*self._decoded)

    def take(self, wanted: Mapping[int, FrameInfo]) -> Iterator[tuple[FrameInfo, VideoFrame]]:
        """Yield the frames at some positions, ascending."""
        for position in sorted(wanted):
            if position < self._position:
                self._begin_pass()
            while self._position < position:
                decoded = next(self._frames, None)
                if decoded is None:
                    return
                self._frame, _ = decoded
                self._position += 1
                self.frames_decoded += 1
            yield wanted[position], self._frame

    def _begin_pass(self) -> None:
        self._pass.close()
        self._decoded = self._pass.enter_context(open_video(self._source, self._limits))
        self._frames = decode_all(*self._decoded, self._limits)
        self._position = -1


def extract_by_linear_decode(request: ExtractionRequest, video: LinearVideo) -> SampledFrames:
    """Extract keyframes of a video that is decoded from its beginning.

    Raises:
        VideoError: As `extract_keyframes` does.
    """
    candidates = [info for info in video.shown if info.is_keyframe] or video.shown
    times_s = video.times.times_s
    candidates_s = None if times_s is None else times_s[[info.position for info in candidates]]
    first_s = None if times_s is None or not times_s.size else float(times_s[0])
    chosen = request.choose(len(candidates), candidates_s, first_s=first_s)
    wanted = {candidates[number].position: candidates[number] for number in chosen}
    got = assemble_frames(
        request, video.describe, chosen=chosen, frames=video.take(wanted), summary=video.summary, method="linear"
    )
    return replace(got, reason="; ".join(filter(None, [video.note, got.reason])))


def scan_frames(container: InputContainer, stream: VideoStream, limits: Limits) -> tuple[list[FrameInfo], PlayTimes]:
    """Decode all frames without keeping their pixels; return them, in the order of the decode, and their times."""
    clock = ClockReader()
    seen = [
        (frame.pts, clock.clock_of(frame.pts), frame.key_frame, is_flagged)
        for frame, is_flagged in decode_all(container, stream, limits, clock)
    ]
    pts, clocks = [each[0] for each in seen], [each[1] for each in seen]
    times = play_times(pts, clocks, unit_s=float(stream.time_base or 0), fps=frame_rate(stream))
    times_s: Sequence[float | None] = [None] * len(seen) if times.times_s is None else times.times_s.tolist()
    # Some decoders never flag keyframes. They output one frame per packet, so the packets' flags are used instead.
    are_marked = any(is_marked for *_, is_marked, _ in seen)
    frames = [
        FrameInfo(pts, times_s[position], position, bool(is_marked if are_marked else is_flagged))
        for position, (pts, _, is_marked, is_flagged) in enumerate(seen)
    ]
    return frames, times
