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
    milliseconds.

    Returns:
        Pixels as shown to the model, shape (M, H, W, 3), uint8; and the metadata of vLLM's own loaders.
    """
    fps, indices = _timeline(frames)
    total = max(indices[-1] + 1, round(frames.duration_s * fps) or frames.total_frames or 0)
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
        before = max(0, int(frames.frame_index[0]))  # frames shown before the first one here; 0 where unknown
        positions = before + _since_first_s(frames) * fps
        if np.abs(positions - positions.round()).max() <= _ROUNDED:
            return fps, positions.round().astype(int).tolist()
    return _MILLISECONDS, (_since_first_s(frames) * _MILLISECONDS).round().astype(int).tolist()


def _since_first_s(frames: FrameFile | Keyframes) -> npt.NDArray[np.float64]:
    times_s: npt.NDArray[np.float64] = frames.time_s[frames.picks] - frames.time_s[0]
    return times_s
