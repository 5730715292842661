"""Frames of one video, for commands that show them; writes nothing to the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.objects import ObjectStore
from tasks.domain.segment import WHOLE
from tasks.frames.decoding import decode_pool, video_limits
from tasks.frames.fetch import FrameFetcher
from tasks.frames.prepare import stat_video

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import Sampling, Segment
    from tasks.frames.fetch import FetchedFrames


def fetch_frames(
    video: str,
    settings: Settings,
    sampling: Sampling,
    *,
    native: bool = False,
    every: bool = False,
    segment: Segment = WHOLE,
) -> tuple[FetchedFrames, int]:
    """Extract frames in a decoding process, at the model's input size; return them and the video's size in bytes.

    Args:
        video: Path or URI.
        settings: Limits and store access.
        sampling: Which frames to take, unless `every`.
        native: Leave frames unscaled and unrotated.
        every: Take every keyframe.
        segment: The part of the video to sample.

    Raises:
        VideoError: The video cannot be used.
    """
    objects = ObjectStore(settings.store, settings.web)
    info = stat_video(objects, video, allow_roots=settings.extract.allow_roots)
    with decode_pool(settings, processes=1) as pool:
        fetcher = FrameFetcher(
            objects=objects,
            cache=None,
            pool=pool,
            sampling=sampling,
            limits=video_limits(settings),
            native=native,
            every=every,
            segment=segment,
        )
        return fetcher.fetch(info), info.size_bytes
