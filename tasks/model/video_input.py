"""Frames as vLLM takes a video: pixels, and what it must know of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.frames.file import FrameFile
    from tasks.video.keyframes import Keyframes


def video_input(frames: FrameFile | Keyframes) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """Lay out frames and their true times as one item of `multi_modal_data["video"]`.

    Without fps and indices every frame would get the same temporal position.

    Returns:
        Pixels as shown to the model, shape (M, H, W, 3), uint8; and the metadata of vLLM's own loaders.
    """
    fps = frames.fps if frames.fps > 0 else 1.0
    total = frames.total_frames or max(1, round(frames.duration_s * fps))
    return frames.images[frames.picks], {
        "fps": fps,
        "duration": total / fps,
        "total_num_frames": total,
        "frames_indices": [round(float(seconds) * fps) for seconds in frames.time_s[frames.picks]],
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }
