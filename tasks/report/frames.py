"""Reads frames and thumbnails from frame files."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from reelabel.errors import FrameFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reelabel.result import Frames, Selection

THUMBNAIL_PX = 144
_QUALITY = 60
_MAX_KEYFRAMES = 2_000
# Ticks of a timeline; more would be indistinguishable.
_MAX_TICKS = 400


class Frame(NamedTuple):
    """A frame that the model saw."""

    time_s: float  # presentation time
    is_keyframe: bool
    image: str | None  # thumbnail as a WebP data URI; None if it cannot be decoded


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The frames of a video that the model saw."""

    frames: tuple[Frame, ...]
    picks: tuple[int, ...]  # indices into `frames`, as shown, with repeats
    keyframe_times_s: tuple[float, ...] | None  # of all keyframes of the file; None if only those of `frames` are known
    keyframes_in_file: int
    duration_s: float
    fps: float
    total_frames: int | None
    width_px: int  # of the frames as the model saw them
    height_px: int
    sampler: str  # that selected them
    frames_decoded: int  # when their frame file was written
    note: str  # why there are no thumbnails, or what is wrong with the video

    @cached_property
    def times_shown(self) -> Counter[int]:
        """How often each frame was shown, by its index in `frames`."""
        return Counter(self.picks)

    @property
    def end_s(self) -> float:
        """End of the file's timeline."""
        return max(self.duration_s, *(frame.time_s for frame in self.frames))

    @property
    def keyframe_ticks_s(self) -> Sequence[float]:
        """Times of known keyframes; an even selection if there are many."""
        known = self.keyframe_times_s
        if known is None:
            return [frame.time_s for frame in self.frames if frame.is_keyframe]
        return known[:: math.ceil(len(known) / _MAX_TICKS) or 1]

    @property
    def clip(self) -> dict[str, Any] | None:
        """The properties that determine what samplers select, for the replay; None if there is no frame rate."""
        fps = self.fps or ((self.total_frames or 0) / self.duration_s if self.duration_s else 0)
        if not fps:
            return None
        total = max(1, self.total_frames or round(self.duration_s * fps))
        known = self.keyframe_times_s
        positions = None if known is None else [round((time_s - known[0]) * fps) for time_s in known]
        return {
            "fps": fps,
            "totalFrames": total,
            "gop": math.ceil(total / max(1, self.keyframes_in_file)),
            "keyframes": None if positions is None else [position for position in positions if position < total],
        }


def make_strip(frames: Frames, *, long_side_px: int = THUMBNAIL_PX) -> Strip:
    """Describe the frames of a frame file, with thumbnails if their pixels can be decoded here."""
    known, images, note = frames.selection, None, frames.note
    try:
        images = frames.unique
    except FrameFileError as error:
        note = f"No thumbnails: {error.message}"
    aspect = known.pixel_aspect or 1.0
    pixels = repeat(None, len(known.time_s)) if images is None else images
    columns = zip(known.time_s.tolist(), known.is_keyframe.tolist(), pixels, strict=True)
    return Strip(
        frames=tuple(
            Frame(
                time_s=round(time_s, 4),
                is_keyframe=is_keyframe,
                image=thumbnail(image, pixel_aspect=aspect, long_side_px=long_side_px) if image is not None else None,
            )
            for time_s, is_keyframe, image in columns
        ),
        picks=tuple(frames.shown.tolist()),
        keyframe_times_s=_keyframe_times_s(known),
        keyframes_in_file=known.keyframes_in_file,
        duration_s=known.duration_s,
        fps=known.fps,
        total_frames=known.total_frames,
        width_px=frames.shape[2],
        height_px=frames.shape[1],
        sampler=frames.sampler,
        frames_decoded=known.frames_decoded,
        note=note,
    )


def thumbnail(pixels: npt.NDArray[np.uint8], *, pixel_aspect: float = 1.0, long_side_px: int = THUMBNAIL_PX) -> str:
    """Return a thumbnail of an RGB frame, shape (H, W, 3), as video players show it: a WebP data URI."""
    height, width = pixels.shape[0], pixels.shape[1] * pixel_aspect
    scale = min(1.0, long_side_px / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.LANCZOS).save(
        written, "WEBP", quality=_QUALITY, method=4
    )
    return "data:image/webp;base64," + base64.b64encode(written.getvalue()).decode()


def _keyframe_times_s(known: Selection) -> tuple[float, ...] | None:
    times_ms = known.keyframe_ms
    if times_ms is None or len(times_ms) > _MAX_KEYFRAMES:
        return None
    return tuple((times_ms / 1e3).tolist())
