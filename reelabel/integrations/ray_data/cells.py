"""The columns that `PrepareVideo` adds to a row: the frames of each of its videos, and their metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from reelabel.integrations.vllm.video_input import video_input
from reelabel.optional import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reelabel.result import Frames

_CHANNELS = 3


class VideoMeta(TypedDict):
    """Metadata of one video in the rows of `PrepareVideo`.

    Every field has one type, so that Arrow can join rows of any kind.

    Attributes:
        video_size: Width and height in pixels; zeros without frames.
        video_num_frames: Number of frames shown, M.
        frame_timestamps: Their times, in seconds from the start of the whole video; shape (M,), float64; empty if
            unknown.
        frame_indices: Their positions in the video, from 0, or -1; shape (M,), int64; empty if unknown.
        deviation_s: Each frame's time minus the instant it was chosen for; shape (M,), float64; empty for samplers that
            aim at no instants.
        source: The path or URI, without the query of a signed URL; empty for bytes.
        decode_note: What differs from a plain decode, such as broken frames that were left out; empty if nothing does.
        failed: Whether there are no frames because of an error.
        error_type: The error's stable code, such as `video_missing`; empty if there is none.
        error: The error, a sentence; empty if there is none.
    """

    video_size: list[int]
    video_num_frames: int
    frame_timestamps: npt.NDArray[np.float64]
    frame_indices: npt.NDArray[np.int64]
    deviation_s: npt.NDArray[np.float64]
    source: str
    decode_note: str
    failed: bool
    error_type: str
    error: str


class PreparedRow(TypedDict):
    """Columns that `PrepareVideo` adds to a row: lists, with an entry for each of its videos, in order; or None.

    Attributes:
        video: The frames of each video: a list of images (`pil`), an array (`numpy`), or an array and its metadata
            (`pack_for_model`). A video that failed has an empty one of the same type.
        video_meta: What is known of each video.
    """

    video: list[Any] | None
    video_meta: list[VideoMeta] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The output format of frames.

    Attributes:
        kind: `pil`, a list of images; `numpy`, one array; `packed`, an array and its metadata, as vLLM expects them.
        channels_first: Arrays have shape (M, 3, H, W) instead of (M, H, W, 3).

    Raises:
        ConfigurationError: `pil` needs Pillow, which is not installed.
    """

    kind: Literal["pil", "numpy", "packed"]
    channels_first: bool = False

    def __post_init__(self) -> None:
        if self.kind == "pil":
            _pillow()

    def video(self, frames: Frames) -> Any:  # noqa: ANN401 - a list, an array or a pair
        """Convert the M frames shown to the model, with repeats; arrays may be those of `frames`."""
        if self.kind == "packed":
            return video_input(frames)
        pixels = frames.images
        if self.kind == "pil":
            return [_pillow().fromarray(image) for image in pixels]
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if self.channels_first else pixels

    def no_video(self) -> Any:  # noqa: ANN401
        """Return an empty value of the same type, so that failed rows do not change the column's type."""
        if self.kind == "pil":
            return []
        empty = np.empty((0, _CHANNELS, 0, 0) if self.channels_first else (0, 0, 0, _CHANNELS), np.uint8)
        return (empty, {}) if self.kind == "packed" else empty


def _pillow() -> Any:  # noqa: ANN401 - a module
    return require("PIL.Image", extra="images", purpose="The output format pil")


def frame_metadata(frames: Frames, source: str) -> VideoMeta:
    height, width = frames.shape[1:3]
    deviation_s = np.empty(0) if frames.deviation_s is None else frames.deviation_s
    return {
        **no_frames(source),
        "video_size": [width, height],
        "video_num_frames": len(frames),
        "frame_timestamps": frames.time_s,
        "frame_indices": frames.index,
        "deviation_s": deviation_s,
        "decode_note": frames.note,
    }


def failure_metadata(error: Exception, source: str) -> VideoMeta:
    """Return the metadata of a failed video; `error_type` is the error's stable code."""
    code = getattr(error, "code", type(error).__name__)
    return {**no_frames(source), "failed": True, "error_type": code, "error": str(error)}


def no_frames(source: str) -> VideoMeta:
    return {
        "video_size": [0, 0],
        "video_num_frames": 0,
        "frame_timestamps": np.empty(0),
        "frame_indices": np.empty(0, np.int64),
        "deviation_s": np.empty(0),
        "source": source,
        "decode_note": "",
        "failed": False,
        "error_type": "",
        "error": "",
    }


def object_column(cells: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Create an object array, whose cells NumPy does not convert."""
    objects = np.empty(len(cells), np.object_)
    for row, cell in enumerate(cells):
        objects[row] = cell
    return objects
