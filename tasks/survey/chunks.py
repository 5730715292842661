"""What it costs to ask about a clip chunk by chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reelabel.containers.stream_properties import check_duration
from reelabel.errors import JobError, VideoUnreadableError
from reelabel.sampling.uniform import pick_evenly
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.domain.chunks import cut_segment
from tasks.survey.cost import cost_of
from tasks.survey.read import SeenClip

if TYPE_CHECKING:
    from reelabel.frames.fetch import SeenVideo
    from reelabel.limits import Limits
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from tasks.survey.clips import Clip
    from tasks.survey.cost import ClipCost

_MOST_COSTED = 32  # chunks of one clip; the others are taken to cost as much on average


def stated_length_s(seen: SeenVideo, limits: Limits) -> float:
    """Return the length that a video states, or if it states none, the time of its last keyframe.

    The last chunk goes on to the video's end, however much longer that is.

    Raises:
        VideoTooLargeError: It is longer than the limit.
        VideoUnreadableError: It tells neither.
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


def cut_clip(clip: Clip, seen: SeenVideo, *, chunk_s: float, limits: Limits) -> list[Segment]:
    """Return the chunks of a clip, as a run cuts them.

    Raises:
        VideoError: It cannot be cut.
    """
    return cut_segment(clip.segment, length_s=stated_length_s(seen, limits), chunk_s=chunk_s)


def cut_seen(each: SeenClip, *, chunk_s: float, limits: Limits) -> SeenClip:
    """Return a clip that was looked at with its chunks, or as one that cannot be used because it cannot be cut."""
    if each.seen is None:
        return each
    try:
        with failing_alone(f"Cutting {redact_uri(each.clip.uri)}"):
            return replace(each, chunks=cut_clip(each.clip, each.seen, chunk_s=chunk_s, limits=limits))
    except JobError as error:
        return SeenClip(clip=each.clip, code=error.code, message=error.message)


def cost_of_chunks(each: SeenClip, sampling: Sampling) -> ClipCost | None:
    """Estimate what a run reads and decodes of a clip and its chunks; None if it cannot be used."""
    if each.seen is None:
        return None
    whole = cost_of(each.clip, each.seen, sampling)
    if len(each.chunks) <= 1:
        return whole
    picked = pick_evenly(len(each.chunks), min(_MOST_COSTED, len(each.chunks)))
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
