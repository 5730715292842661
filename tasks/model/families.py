"""What families of models need of a video beyond what all of them take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Video = tuple[npt.NDArray[np.uint8], dict[str, Any]]


def fit_video(video: Video, config: Any) -> Video:  # noqa: ANN401 - of transformers
    """Show frames as a model's processor counts them.

    Args:
        video: Frames, shape (M, H, W, 3), and metadata, as `tasks.model.video_input` lays them out.
        config: The model's own configuration.

    Returns:
        The same, but each frame once for GLM, whose prompt holds a place for each distinct one; and a frame
        that is alone twice for models that take frames in pairs, as their own padding would, since some of
        their processors refuse it.
    """
    if str(config.model_type).startswith("glm"):
        video = each_once(video)
    if int(getattr(getattr(config, "vision_config", None), "temporal_patch_size", 1)) > 1 and len(video[0]) == 1:
        video = _shown(video, [0, 0])
    return video


def each_once(video: Video) -> Video:
    """Show no frame repeatedly."""
    _, first = np.unique(video[1]["frames_indices"], return_index=True)
    return video if len(first) == len(video[0]) else _shown(video, sorted(first.tolist()))


def _shown(video: Video, positions: list[int]) -> Video:
    frames, metadata = video
    return frames[positions], metadata | {"frames_indices": [metadata["frames_indices"][at] for at in positions]}
