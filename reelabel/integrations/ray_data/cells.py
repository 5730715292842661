"""The columns that `PrepareVideo` adds to a row: frames of each video, decoded or held already, and metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.integrations.ray_data.rows import VIDEO, VIDEO_FRAMES, VIDEO_META
from reelabel.integrations.vllm.video_input import video_input
from reelabel.optional import require
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.sampling.spec import VideoProperties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling


_CHANNELS = 3
_IMAGE_DIMENSIONS = 3


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
    """The output format of frames: `pil`, a list of images; `numpy`, one array; `packed`, that and metadata, for vLLM.

    With `channels_first`, arrays have shape (M, 3, H, W) instead of (M, H, W, 3). Raises ConfigurationError if `pil`
    needs Pillow, which is not installed.
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


def held_videos(row: Mapping[str, Any]) -> list[Any]:
    """Return the frames that a row's `video` or `video_frames` already holds, for each of its videos; none if empty.

    Those of one video are images, an array (M, H, W, 3) or (M, 3, H, W), or a pair of either and its metadata; those of
    several, a list of such.
    """
    for name in (VIDEO, VIDEO_FRAMES):
        videos = _split_videos(row.get(name))
        if any(len(frames_of(video)) for video in videos):
            return videos
    return []


def frames_of(video: Any) -> Any:  # noqa: ANN401 - images or an array
    return video[0] if isinstance(video, tuple) else video


def _split_videos(cell: Any) -> list[Any]:  # noqa: ANN401 - whatever the column holds
    if isinstance(cell, tuple):
        return [cell]
    if not isinstance(cell, list | np.ndarray) or len(cell) == 0:
        return []
    is_one = all(_is_image(item) for item in cell)
    return [cell] if is_one else [*cell]


def _is_image(item: Any) -> bool:  # noqa: ANN401 - whatever the column holds
    return item.ndim == _IMAGE_DIMENSIONS if isinstance(item, np.ndarray) else not isinstance(item, list | tuple)


def held_cells(row: Mapping[str, Any]) -> list[tuple[Any, VideoMeta]]:
    """Return the frames of each video that a row holds already, and their metadata, of which times may be unknown."""
    videos, metas = held_videos(row), row.get(VIDEO_META)
    if metas is None or len(metas) != len(videos):
        metas = [{}] * len(videos)
    return [(video, _held_metadata(frames_of(video), meta or {})) for video, meta in zip(videos, metas, strict=True)]


def sample_frames(video: Any, meta: VideoMeta, sampling: Sampling) -> tuple[Any, VideoMeta]:  # noqa: ANN401
    """Choose by a dense sampler among the frames of one video: images, an array, or frames packed with metadata.

    Returned in the format in which they came, with metadata. Times are those of its metadata, or of the packed ones.

    Raises SamplingRefusedError if the sampler needs times that are unknown, or selects no frame.
    """
    frames, packed = frames_of(video), video[1] if isinstance(video, tuple) else None
    times_s, positions = _times_s(len(frames), meta, packed or {}), meta["frame_indices"]
    properties = _properties(len(frames), times_s, sampling)
    chosen, deviations = choose_indices(sampling, properties), deviations_s(sampling, properties)
    kept = frames[chosen] if isinstance(frames, np.ndarray) else [frames[at] for at in chosen]
    picked: VideoMeta = {
        **meta,
        "video_num_frames": len(chosen),
        "frame_timestamps": np.empty(0) if times_s is None else times_s[chosen],
        "frame_indices": positions[chosen] if len(positions) == len(frames) else np.empty(0, np.int64),
        "deviation_s": np.empty(0) if deviations is None else deviations,
    }
    if packed is None:
        return kept, picked
    indices = packed.get("frames_indices")
    is_each = indices is not None and len(indices) == len(frames)
    return (kept, packed | ({"frames_indices": [indices[at] for at in chosen]} if is_each else {})), picked


def _times_s(count: int, meta: VideoMeta, packed: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    indices, fps = packed.get("frames_indices"), packed.get("fps")
    times_s = meta["frame_timestamps"]
    if len(times_s) == count:
        return times_s
    return np.asarray(indices, np.float64) / fps if indices is not None and len(indices) == count and fps else None


def _properties(count: int, times_s: npt.NDArray[np.float64] | None, sampling: Sampling) -> VideoProperties:
    if times_s is None:
        if sampling.fps is not None or sampling.sampler not in {"num_frames", "uniform"}:
            raise SamplingRefusedError(
                f"The times of the frames are unknown, which the sampler {sampling.sampler} needs; use num_frames."
            )
        return VideoProperties(total_frames=count, fps=0.0, duration_s=0.0)
    if not (np.isfinite(times_s).all() and (np.diff(times_s) >= 0).all()):
        raise SamplingRefusedError("The times of the frames fall, or are no numbers; correct those of video_meta.")
    length_s = float(times_s.max() - times_s.min())
    fps = (count - 1) / length_s if length_s > 0 else 0.0
    return VideoProperties(total_frames=count, fps=fps, duration_s=count / fps if fps else 0.0, times_s=times_s)


def _held_metadata(frames: Any, known: Mapping[str, Any]) -> VideoMeta:  # noqa: ANN401 - images or an array
    meta: Any = {**no_frames(""), "video_size": _size_of(frames), **known, "video_num_frames": len(frames)}
    types = {"frame_timestamps": np.float64, "frame_indices": np.int64, "deviation_s": np.float64}
    arrays = {name: np.asarray(meta[name], dtype) for name, dtype in types.items()}  # lists, if they come from Arrow
    held: VideoMeta = meta | arrays | {"video_size": [*meta["video_size"]]}
    return held


def _size_of(frames: Any) -> list[int]:  # noqa: ANN401 - images, an array or an unknown type
    if len(frames) == 0:
        return [0, 0]
    if hasattr(frames[0], "width") and hasattr(frames[0], "height"):
        return [frames[0].width, frames[0].height]
    shape: tuple[int, ...] = getattr(frames[0], "shape", ())
    if len(shape) != _IMAGE_DIMENSIONS:
        return [0, 0]
    height, width = shape[:2] if shape[-1] == _CHANNELS else shape[1:]
    return [width, height]
