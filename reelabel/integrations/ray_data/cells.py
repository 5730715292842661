"""The cells of the columns `video` and `video_meta`, with the field names of Ray Data's video example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reelabel.integrations.ray_data.rows import VIDEO, VIDEO_META
from reelabel.integrations.vllm.video_input import video_input
from reelabel.optional import require
from reelabel.sampled_frames import shown_pixels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from reelabel.sampled_frames import SampledFrames

_CHANNELS = 3
_FRAME_DIMENSIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The output format of frames.

    Attributes:
        kind: `pil`, a list of images; `numpy`, one array; `packed`, an array and its metadata, as vLLM expects them.
        channels_first: Arrays have shape (M, 3, H, W) instead of (M, H, W, 3).
    """

    kind: Literal["pil", "numpy", "packed"]
    channels_first: bool = False

    def video(self, frames: SampledFrames) -> Any:  # noqa: ANN401 - a list, an array or a pair
        """Convert the M frames shown to the model, with repeats; arrays may be those of `frames`."""
        if self.kind == "packed":
            return video_input(frames)
        pixels = shown_pixels(frames.images, frames.picks)
        if self.kind == "pil":
            images = require("PIL.Image", extra="images", purpose="The output format pil")
            return [images.fromarray(image) for image in pixels]
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if self.channels_first else pixels

    def no_video(self) -> Any:  # noqa: ANN401
        """Return an empty value of the same type, so that failed rows do not change the column's type."""
        if self.kind == "pil":
            return []
        empty = np.empty((0, _CHANNELS, 0, 0) if self.channels_first else (0, 0, 0, _CHANNELS), np.uint8)
        return (empty, {}) if self.kind == "packed" else empty


def frame_metadata(frames: SampledFrames, source: str) -> dict[str, Any]:
    """Return the metadata of one video's frames."""
    height, width = frames.images.shape[1:3]
    meta = _meta(source, size=[width, height], timestamps=frames.time_s[frames.picks].tolist())
    deviation_s = [] if frames.deviation_s is None else frames.deviation_s.tolist()
    return meta | {"decode_note": frames.reason, "deviation_s": deviation_s}


def no_video_metadata() -> dict[str, Any]:
    """Return the metadata of a row that names no video."""
    return _meta("", size=None, timestamps=[])


def failure_metadata(error: Exception, source: str) -> dict[str, Any]:
    """Return the metadata of a failed video; `error_type` is the error's stable code."""
    code = getattr(error, "code", type(error).__name__)
    return _meta(source, size=None, timestamps=[]) | {"failed": True, "error_type": code, "error": str(error)}


def pass_through_cells(row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Pass through the frames of a row, and their metadata; if it has none, timestamps are unknown."""
    video = row[VIDEO]
    if row.get(VIDEO_META) is not None:
        return video, row[VIDEO_META]
    frames = video[0] if isinstance(video, tuple) else video
    return video, _meta("", size=_size_of(frames[0]), timestamps=[]) | {"video_num_frames": len(frames)}


def object_column(cells: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Create an object array, whose cells NumPy does not convert."""
    objects = np.empty(len(cells), np.object_)
    for row, cell in enumerate(cells):
        objects[row] = cell
    return objects


def _meta(source: str, *, size: list[int] | None, timestamps: list[float]) -> dict[str, Any]:
    return {
        "video_size": size,
        "video_num_frames": len(timestamps),
        "frame_timestamps": timestamps,
        "deviation_s": [],
        "source": source,
        "decode_note": "",
        "failed": False,
        "error_type": None,
        "error": None,
    }


def _size_of(frame: Any) -> list[int] | None:  # noqa: ANN401 - an image, an array or an unknown type
    """Return width and height in pixels."""
    if hasattr(frame, "width") and hasattr(frame, "height"):
        return [frame.width, frame.height]
    shape: tuple[int, ...] = getattr(frame, "shape", ())
    if len(shape) != _FRAME_DIMENSIONS:
        return None
    height, width = shape[:2] if shape[-1] == _CHANNELS else shape[1:]
    return [width, height]
