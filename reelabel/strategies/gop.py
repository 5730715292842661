"""Decode frames anywhere on the timeline, each from the keyframe before it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reelabel.containers.demux import open_video
from reelabel.containers.registry import probe_file
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.gops import Timeline, decode_chosen
from reelabel.errors import VideoUnreadableError
from reelabel.fast_path import FastPathUnavailableError
from reelabel.sources.sparse_file import SparseFile
from reelabel.strategies.seek import list_packets, presentation_order
from reelabel.strategies.timeline import choose_positions

if TYPE_CHECKING:
    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.video_file import VideoFile


def extract_by_gops(request: ExtractionRequest) -> SampledFrames:
    """Decode the GOPs that contain a chosen frame, each once.

    Raises:
        FastPathUnavailableError: The packets are not sufficient, or a GOP does not decode to the frames they announce.
        VideoError: As `extract_keyframes` does.
    """
    table = None if isinstance(request.source, SparseFile) else read_frame_times(request.source, request.limits)
    with open_video(request.source, request.limits) as (container, stream):
        times, keyframes = table or presentation_order(list_packets(container, stream, request.limits))
        choice = choose_positions(request, times, stream)
    if choice.positions[0] < keyframes[0]:  # an edit list hides the keyframe they depend on
        raise FastPathUnavailableError("frames precede the first presented keyframe")
    are_key = set(keyframes)
    unique = dict.fromkeys(choice.positions)
    infos = [FrameInfo(times[position], position, is_keyframe=position in are_key) for position in unique]
    pts = [times[position] for position in keyframes]
    summary = IndexSummary(keyframes=len(keyframes), frames=len(times), keyframe_pts=pts, first_pts=times[0])
    with open_video(request.source, request.limits, strictly=True) as opened:
        frames = decode_chosen(opened, infos, Timeline(times, keyframes), request)
        describe = partial(StreamProperties.of, *opened)
        got = assemble_frames(
            request,
            describe,
            chosen=choice.positions,
            frames=frames,
            summary=summary,
            method="seek",
            in_order=infos,
        )
    return choice.measured(got)


def read_frame_times(file: VideoFile, limits: Limits) -> tuple[list[int], list[int]] | None:
    """Read from the header what `presentation_order` computes from all packets; None if it is not sufficient.

    Returns:
        The PTS of all frames in the stream's time base, ascending, and the positions of keyframes among them.

    Raises:
        VideoTooLargeError: There are more frames than `limits.max_frames`.
    """
    try:
        probed = probe_file(file)
        read = probed.container.read_frame_times
        if read is None:
            return None
        with probed.open(limits) as video, probed.guard():
            return read(video)
    except (FastPathUnavailableError, VideoUnreadableError):
        return None
