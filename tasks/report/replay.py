"""Renders the page that replays keyframes and uniform sampling of one video."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import ConfigurationError
from reelabel.sampling.options import DEFAULT_NUM_FRAMES, Sampling
from reelabel.sampling.spec import VideoProperties
from reelabel.sampling.uniform import pick_evenly, sample_uniformly
from tasks.report.frames import thumbnail
from tasks.report.render import render_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.result import FrameIndex
    from reelabel.video import Video

# Maximum of the slider, bytes of thumbnails on the page, and bytes of pixels in memory.
_MOST_FRAMES = 32
_MOST_BYTES = 2_000_000
_MOST_DECODED_BYTES = 256 * 1024**2


def render_replay(name: str, video: Video) -> str:
    """Render the page of an open video.

    It has the frames for each number of frames from 1 to 32, as far as 2 MB allow, the default number first.

    Raises:
        ConfigurationError: It does not list its frames from a keyframe on.
        VideoError: It cannot be decoded.
    """
    index = video.index()
    if not index.is_keyframe[0]:
        raise ConfigurationError("The video starts without a keyframe, so its first frames cannot be decoded.")
    total, info = len(index), video.info
    seconds = float(index.time_s[-1])
    fps = info.fps or ((total - 1) / seconds if seconds else 1.0)
    facts = VideoProperties(total_frames=total, fps=fps, duration_s=total / fps)
    keyframes = np.flatnonzero(index.is_keyframe).tolist()
    return render_page(
        "replay_page.html.jinja",
        scripts=("replay.js",),
        sections=(("video", "Video"), ("replay", "Replay")),
        name=name,
        info=info,
        index=index,
        seconds=info.duration_s or total / fps,
        longest_gop=int(np.diff([*keyframes, total]).max()),
        clip={
            "fps": fps,
            "totalFrames": total,
            "gop": math.ceil(total / len(keyframes)),
            "keyframes": keyframes,
        },
        frames=sorted(_thumbnails(video, index, facts, keyframes)),
        num_frames=DEFAULT_NUM_FRAMES,
        most_frames=_MOST_FRAMES,
    )


def _thumbnails(
    video: Video, index: FrameIndex, facts: VideoProperties, keyframes: Sequence[int]
) -> Iterator[tuple[int, float, str]]:
    """Yield positions, times in seconds, and images of the selected frames; images are empty beyond the 2 MB."""
    info = video.info
    at_once = max(1, _MOST_DECODED_BYTES // max(1, 3 * info.width * info.height))
    done: set[int] = set()
    room = _MOST_BYTES
    for num_frames in (DEFAULT_NUM_FRAMES, *range(1, _MOST_FRAMES + 1)):
        wanted = sorted(set(_chosen(facts, keyframes, num_frames)) - done)
        done |= {*wanted}
        for start in range(0, len(wanted), at_once):
            positions = wanted[start : start + at_once]
            pixels = video.frames(positions) if room > 0 else [None] * len(positions)
            for position, frame in zip(positions, pixels, strict=True):
                image = "" if frame is None else thumbnail(frame, pixel_aspect=info.pixel_aspect or 1.0)
                room -= len(image)
                yield position, float(index.time_s[position]), image if room >= 0 else ""


def _chosen(facts: VideoProperties, keyframes: Sequence[int], num_frames: int) -> Sequence[int]:
    uniform = sample_uniformly(Sampling(sampler="uniform", num_frames=num_frames), facts).tolist()
    return [*(keyframes[at] for at in pick_evenly(len(keyframes), num_frames)), *uniform]
