"""The reference strategy: a linear decode, once to list all frames and once to take the chosen ones."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from reelabel.containers.demux import decode_all, open_video
from reelabel.containers.stream_properties import StreamProperties, frame_rate
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.fast_path import FastPathUnavailableError
from reelabel.strategies.seek import list_packets, presentation_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.sparse_file import SparseFile
    from reelabel.sources.video_file import VideoFile

_MAX_TICKS = 1_000_000


class LinearVideo:
    """A video that is decoded from its beginning: once to list its frames, and once more to take some of them.

    Frames that are taken in the order of the decode are taken in one pass, whatever their number; one that lies before
    the last begins another.

    Attributes:
        shown: Its frames, in the order of the decode.
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
            self.shown = scan_frames(*opened, limits)
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
            return presentation_order(list_packets(*self.opened, self._limits))[0]
        except FastPathUnavailableError:
            return None

    @cached_property
    def summary(self) -> IndexSummary:
        """What is known of its frames as a whole."""
        pts = [info.pts for info in self.shown if info.is_keyframe]
        return IndexSummary(
            keyframes=len(pts),
            frames=len(self.shown),
            keyframe_pts=pts,
            first_pts=self.pts[0] if self.pts else None,
            last_pts=self.pts[-1] if self.pts else None,
        )

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
    chosen = _choose(request, video, candidates)
    wanted = {candidates[number].position: candidates[number] for number in chosen}
    return assemble_frames(
        request, video.describe, chosen=chosen, frames=video.take(wanted), summary=video.summary, method="linear"
    )


def _choose(request: ExtractionRequest, video: LinearVideo, candidates: Sequence[FrameInfo]) -> list[int]:
    stream = video.opened[1]
    fps = frame_rate(stream)
    if fps and all(pts is None for pts in video.pts):  # a raw elementary stream, whose times follow from its rate
        rate = Fraction(fps).limit_denominator(_MAX_TICKS)
        return request.choose([info.position for info in candidates], 1 / rate, first_pts=0)
    pts = [info.pts for info in candidates]
    return request.choose(pts, stream.time_base, first_pts=video.summary.first_pts)


def scan_frames(container: InputContainer, stream: VideoStream, limits: Limits) -> list[FrameInfo]:
    """Decode all frames and return their PTS, positions and keyframe flags, without pixels."""
    seen = [(frame.pts, frame.key_frame, is_flagged) for frame, is_flagged in decode_all(container, stream, limits)]
    # Some decoders never flag keyframes. They output one frame per packet, so the packets' flags are used instead.
    are_marked = any(is_marked for _, is_marked, _ in seen)
    return [
        FrameInfo(pts, position, bool(is_marked if are_marked else is_flagged))
        for position, (pts, is_marked, is_flagged) in enumerate(seen)
    ]
