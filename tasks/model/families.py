"""Adaptations of a video that some model families need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Video = tuple[npt.NDArray[np.uint8], dict[str, Any]]


def adapt_video(video: Video, config: Any) -> Video:  # noqa: ANN401 - of transformers
    """Adapt a video to what the model's processor expects.

    Args:
        video: Frames, shape (M, H, W, 3), and metadata, as returned by `tasks.model.video_input`.
        config: The model's configuration.

    Returns:
        The video, with repeated frames dropped for GLM, whose prompt has one placeholder per distinct frame;
        and a single frame doubled for models that take frames in pairs, as their own padding would do it,
        because some of their processors reject a single one.
    """
    if str(config.model_type).startswith("glm"):
        video = drop_repeated_frames(video)
    if int(getattr(getattr(config, "vision_config", None), "temporal_patch_size", 1)) > 1 and len(video[0]) == 1:
        video = _select(video, [0, 0])
    return video


def drop_repeated_frames(video: Video) -> Video:
    """Drop repeated frames."""
    _, first = np.unique(video[1]["frames_indices"], return_index=True)
    return video if len(first) == len(video[0]) else _select(video, sorted(first.tolist()))


def _select(video: Video, positions: list[int]) -> Video:
    frames, metadata = video
    return frames[positions], metadata | {"frames_indices": [metadata["frames_indices"][at] for at in positions]}
