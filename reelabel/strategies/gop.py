"""Decode frames anywhere on the timeline, each from the keyframe before it.

Which frames there are, the container's index tells where it lists them; the file is then read at the GOPs needed only.
Otherwise, all packets are listed.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from reelabel.containers.demux import open_video
from reelabel.containers.stream_properties import StreamProperties
from reelabel.decode.assemble import FrameInfo, IndexSummary, assemble_frames
from reelabel.decode.gops import Timeline, decode_chosen
from reelabel.errors import FallbackRequired
from reelabel.strategies.frame_index import NoFrameIndexError, extract_by_frame_index
from reelabel.strategies.seek import list_frames, list_packets, times_of
from reelabel.strategies.timeline import choose_positions

if TYPE_CHECKING:
    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames


def extract_by_gops(request: ExtractionRequest) -> SampledFrames:
    """Decode the GOPs of a local file that contain a chosen frame, each once.

    Raises:
        FallbackRequired: The packets are not sufficient, or a GOP does not decode to the frames they announce.
        VideoError: As `extract_keyframes` does.
    """
    try:
        return extract_by_frame_index(request)[0]
    except NoFrameIndexError:
        return _extract_by_packets(request)


def _extract_by_packets(request: ExtractionRequest) -> SampledFrames:
    with open_video(request.source, request.limits) as (container, stream):
        pts, keyframes = list_frames(list_packets(container, stream, request.limits, all_shown=True))
        times_s = times_of(pts, stream)
        choice = choose_positions(request, len(pts), times_s, stream)
    if choice.positions[0] < keyframes[0]:  # an edit list hides the keyframe they depend on
        raise FallbackRequired("frames precede the first presented keyframe")
    times, starts = pts.tolist(), keyframes.tolist()
    are_key = set(starts)
    infos = [
        FrameInfo(times[position], float(times_s[position]), position, is_keyframe=position in are_key)
        for position in dict.fromkeys(choice.positions)
    ]
    summary = IndexSummary(
        keyframes=len(keyframes),
        frames=len(pts),
        keyframe_s=times_s[keyframes],
        first_s=float(times_s[0]),
        last_s=float(times_s[-1]),
    )
    reopen = partial(open_video, request.source, request.limits, strictly=True)
    with (
        reopen() as opened,
        closing(decode_chosen(opened, infos, Timeline(times, starts, reopen), request)) as frames,
    ):
        got = assemble_frames(
            request,
            partial(StreamProperties.of, *opened),
            chosen=choice.positions,
            frames=frames,
            in_order=infos,
            summary=summary,
            method="seek",
        )
    return choice.measured(got)
