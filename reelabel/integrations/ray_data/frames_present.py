"""Sampling of the frames that a row already holds, as if they were a video."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.errors import SamplingRefusedError
from reelabel.integrations.ray_data.cells import pass_through_cells
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, deviations_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from reelabel.sampling.options import Sampling


def sample_frames(row: Mapping[str, Any], sampling: Sampling) -> tuple[Any, dict[str, Any]]:
    """Choose by a dense sampler among the frames of a row's `video`: images, an array, or frames packed with metadata.

    Times are those of its `video_meta`, or of the packed metadata.

    Returns:
        The chosen frames, in the format in which they came, and their metadata.

    Raises:
        SamplingRefusedError: The sampler needs times that are unknown, or selects no frame.
    """
    video, meta = pass_through_cells(row)
    is_packed = isinstance(video, tuple)
    frames = video[0] if is_packed else video
    times_s = _times_s(len(frames), meta, video[1] if is_packed else {})
    facts = _properties(len(frames), times_s, sampling)
    chosen, deviations = choose_indices(sampling, facts), deviations_s(sampling, facts)
    kept = frames[chosen] if isinstance(frames, np.ndarray) else [frames[at] for at in chosen]
    meta = meta | {
        "video_num_frames": len(chosen),
        "frame_timestamps": [] if times_s is None else times_s[chosen].tolist(),
        "deviation_s": [] if deviations is None else deviations.tolist(),
    }
    if not is_packed:
        return kept, meta
    indices = video[1].get("frames_indices")
    picked = {} if indices is None else {"frames_indices": [indices[at] for at in chosen]}
    return (kept, video[1] | picked), meta


def _times_s(count: int, meta: Mapping[str, Any], packed: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    """Return the time of each frame in seconds; None if unknown."""
    indices, fps = packed.get("frames_indices"), packed.get("fps")
    times_s = meta.get("frame_timestamps")
    if times_s is not None and len(times_s) == count:
        return np.asarray(times_s, np.float64)
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
