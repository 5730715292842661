"""Sampling of the frames that a row already holds, as if they were a video."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.integrations.ray_data.rows import frames_of
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, deviations_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from reelabel.integrations.ray_data.cells import VideoMeta
    from reelabel.sampling.options import Sampling


def sample_frames(video: Any, meta: VideoMeta, sampling: Sampling) -> tuple[Any, VideoMeta]:  # noqa: ANN401
    """Choose by a dense sampler among the frames of one video: images, an array, or frames packed with metadata.

    Times are those of its metadata, or of the packed ones.

    Returns:
        The chosen frames, in the format in which they came, and their metadata.

    Raises:
        SamplingRefusedError: The sampler needs times that are unknown, or selects no frame.
    """
    frames, packed = frames_of(video), video[1] if isinstance(video, tuple) else None
    times_s = _times_s(len(frames), meta, packed or {})
    facts = _properties(len(frames), times_s, sampling)
    chosen, deviations = choose_indices(sampling, facts), deviations_s(sampling, facts)
    kept = frames[chosen] if isinstance(frames, np.ndarray) else [frames[at] for at in chosen]
    picked: VideoMeta = {
        **meta,
        "video_num_frames": len(chosen),
        "frame_timestamps": np.empty(0) if times_s is None else times_s[chosen],
        "frame_indices": meta["frame_indices"][chosen] if len(meta["frame_indices"]) else meta["frame_indices"],
        "deviation_s": np.empty(0) if deviations is None else deviations,
    }
    if packed is None:
        return kept, picked
    indices = packed.get("frames_indices")
    return (kept, packed | ({} if indices is None else {"frames_indices": [indices[at] for at in chosen]})), picked


def _times_s(count: int, meta: VideoMeta, packed: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    """Return the time of each frame in seconds; None if unknown."""
    indices, fps = packed.get("frames_indices"), packed.get("fps")
    times_s = meta["frame_timestamps"]
    if len(times_s) == count:
        return times_s
    return np.asarray(indices, np.float64) / fps if indices is not None and len(indices) == count and fps else None


def _properties(count: int, times_s: npt.NDArray[np.float64] | None, sampling: Sampling) -> VideoProperties:
    if times_s is None:
        if sampling.fps is not None or not _counts(sampling):
            raise SamplingRefusedError(
                f"The times of the frames are unknown, which the sampler {sampling.sampler} needs; use num_frames."
            )
        return VideoProperties(total_frames=count, fps=0.0, duration_s=0.0)
    length_s = float(times_s.max() - times_s.min())
    fps = (count - 1) / length_s if length_s > 0 else 0.0
    return VideoProperties(total_frames=count, fps=fps, duration_s=count / fps if fps else 0.0, times_s=times_s)


def _counts(sampling: Sampling) -> bool:
    """Return whether a sampler can do without times: it spreads a number of frames."""
    return sampling.sampler in {"num_frames", "uniform"}
