"""Frames as vLLM takes a video: pixels, and what it must know of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.frames.file import FrameFile
    from tasks.video.keyframes import Keyframes

# Of a frame. Containers round times, many to milliseconds: at 60 frames a second that is 0.03 of one.
_ROUNDED = 0.1
_MILLISECONDS = 1000.0


def video_input(frames: FrameFile | Keyframes) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """Lay out frames and their true times as one item of `multi_modal_data["video"]`.

    Models take `frames_indices` / `fps` for a frame's time, and `total_num_frames` / `fps` for the
    length that the frames are spread over. So indices count from the video's first frame, at the
    container's rate where the frames' times follow it, as vLLM's own loaders have them. No rate is
    true of a variable one, and an average would move a frame by any amount: there indices count
    milliseconds. Of a segment, both count from where it starts, as if the video had been cut there.

    Returns:
        Pixels as shown to the model, shape (M, H, W, 3), uint8; and the metadata of vLLM's own loaders.
    """
    fps, indices = _timeline(frames)
    total = max(indices[-1] + 1, _length(frames, fps))
    return frames.images[frames.picks], {
        "fps": fps,
        "duration": total / fps,
        "total_num_frames": total,
        "frames_indices": indices,
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }


def _timeline(frames: FrameFile | Keyframes) -> tuple[float, list[int]]:
    """Find a rate at which every pick falls on a whole number; gives those, in the order shown."""
    fps = frames.fps
    if fps > 0:
        positions = _before(frames) + _since_s(frames) * fps
        if np.abs(positions - positions.round()).max() <= _ROUNDED:
            return fps, positions.round().astype(int).tolist()
    return _MILLISECONDS, (_since_s(frames) * _MILLISECONDS).round().astype(int).tolist()


def _before(frames: FrameFile | Keyframes) -> int:
    """Count frames shown before the first one here; 0 where unknown, and of a segment, whose start is known."""
    return max(0, int(frames.frame_index[0])) if frames.starts_s is None else 0


def _since_s(frames: FrameFile | Keyframes) -> npt.NDArray[np.float64]:
    """Give seconds since the first frame here or since the segment's start; a frame from before it is at 0."""
    starts_s = float(frames.time_s[0]) if frames.starts_s is None else frames.starts_s
    return np.maximum(frames.time_s[frames.picks] - starts_s, 0.0)


def _length(frames: FrameFile | Keyframes, fps: float) -> int:
    """Give the length in frames, or milliseconds; 0 where unknown."""
    start_s, end_s = frames.segment
    length_s = min(frames.duration_s, frames.duration_s if end_s is None else end_s) - (start_s or 0.0)
    return max(0, round(length_s * fps)) or (0 if start_s or end_s else frames.total_frames or 0)
