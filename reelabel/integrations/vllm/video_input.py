"""Frames as vLLM takes a video: pixels, and the metadata of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.result import Frames, Selection

    Video = tuple[npt.NDArray[np.uint8], dict[str, Any]]


# In frames. Containers round times, many to milliseconds: at 60 fps that is 0.03 of a frame.
_TOLERANCE_FRAMES = 0.1
_MILLISECONDS = 1000.0


def video_input(frames: Frames) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """Convert frames and their true times to one item of `multi_modal_data["video"]`; ValueError if there is none.

    Models use `frames_indices` / `fps` as a frame's time, and `total_num_frames` / `fps` as the length that the frames
    are spread over. At a constant frame rate, indices count frames from the video's first, as in vLLM's own loaders. At
    a variable rate, where an average could move a frame by any amount, indices count milliseconds. In a segment, both
    count from its start, as if the video had been cut there.

    Returns pixels as shown to the model, shape (M, H, W, 3), which may be those of `frames`, and metadata as of vLLM's
    own loaders.
    """
    if not len(frames):
        raise ValueError("There is no frame to show.")
    fps, indices = _timeline(frames.selection)
    total = max(max(indices) + 1, _length(frames.selection, fps))
    return frames.images, {
        "fps": fps,
        "duration": total / fps,
        "total_num_frames": total,
        "frames_indices": indices,
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }


def _timeline(frames: Selection) -> tuple[float, list[int]]:
    """Find a rate at which the time of every pick is a whole number; return it, and these in the order shown."""
    fps = frames.fps
    if fps > 0:
        positions = _before(frames) + _since_s(frames) * fps
        if np.abs(positions - positions.round()).max() <= _TOLERANCE_FRAMES:
            return fps, positions.round().astype(int).tolist()
    return _MILLISECONDS, (_since_s(frames) * _MILLISECONDS).round().astype(int).tolist()


def _before(frames: Selection) -> int:
    """Count the video's frames before the first one here; 0 if unknown, where times jump back, and in a segment."""
    is_known = frames.starts_s is None and (np.diff(frames.frame_index) > 0).all()
    return max(0, int(frames.frame_index[0])) if is_known else 0


def _since_s(frames: Selection) -> npt.NDArray[np.float64]:
    """Return seconds since the segment's start, or since the first frame here; a frame from before it is at 0."""
    starts_s = float(frames.time_s[0]) if frames.starts_s is None else frames.starts_s
    return np.maximum(frames.time_s[frames.picks] - starts_s, 0.0)


def _length(frames: Selection, fps: float) -> int:
    """Return the length in frames or milliseconds: of what decodes, where that was counted; 0 if unknown."""
    start_s, end_s = frames.segment
    if frames.total_frames and fps == frames.fps and not (start_s or end_s):
        return frames.total_frames
    length_s = min(frames.duration_s, frames.duration_s if end_s is None else end_s) - (start_s or 0.0)
    return max(0, round(length_s * fps))


def adapt_video(video: Video, config: Any) -> Video:  # noqa: ANN401 - of transformers
    """Adapt a video, as `video_input` returns it, to what the model's processor expects, by the model's configuration.

    Repeated frames are dropped for GLM, whose prompt has one placeholder per distinct frame. A single frame is doubled
    for models that take frames in pairs, as their own padding would do it: some of their processors reject a single
    one.
    """
    if str(config.model_type).startswith("glm"):
        video = drop_repeated_frames(video)
    if int(getattr(getattr(config, "vision_config", None), "temporal_patch_size", 1)) > 1 and len(video[0]) == 1:
        video = _select(video, [0, 0])
    return video


def drop_repeated_frames(video: Video) -> Video:
    _, first = np.unique(video[1]["frames_indices"], return_index=True)
    return video if len(first) == len(video[0]) else _select(video, sorted(first.tolist()))


def _select(video: Video, positions: list[int]) -> Video:
    frames, metadata = video
    return frames[positions], metadata | {"frames_indices": [metadata["frames_indices"][at] for at in positions]}
