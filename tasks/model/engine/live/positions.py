"""Positions of adjacent pairs of frames: those of the one video that they are.

Models of the Qwen2-VL family number a video's tokens by time, height and width, and begin anew after each video. Pairs
of frames that follow each other without a token between them are one video, whose time goes on.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vllm.multimodal.inputs import MultiModalFeatureSpec

SECONDS = "second_per_grid_ts"
# A longer gap counts as this long: where nothing changed for an hour, or frames were evicted, positions would run out.
MAX_STEP_S = 30.0
_ROUNDING = 1e-6  # seconds times a rate are whole numbers but for their last bits


def continue_positions(worker: Any) -> None:  # noqa: ANN401 - vLLM's Worker
    """Have a worker's model number adjacent videos as one, if it begins anew after each video."""
    model = worker.model_runner.get_model()
    if hasattr(model, "iter_mm_grid_thw"):
        model.get_mrope_input_positions = partial(merged_positions, model, model.get_mrope_input_positions)


def elapsed_s(times_s: Sequence[float]) -> list[float]:
    """Return the time of each item since the first, with long gaps shortened."""
    cut_s, elapsed = 0.0, []
    for before, now in zip([times_s[0], *times_s], times_s, strict=False):
        cut_s += max(0.0, now - before - MAX_STEP_S)
        elapsed.append(now - times_s[0] - cut_s)
    return elapsed


def time_index(seconds: float, per_s: float) -> int:
    """Return the position of a time."""
    return int(seconds * per_s + _ROUNDING)


def merged_positions(
    model: Any,  # noqa: ANN401 - vLLM's model
    usual: Callable[[list[int], list[MultiModalFeatureSpec]], tuple[torch.Tensor, int]],
    input_tokens: list[int],
    mm_features: list[MultiModalFeatureSpec],
) -> tuple[torch.Tensor, int]:
    """Number the positions of a prompt; the signature of `get_mrope_input_positions`.

    Args:
        model: Of the Qwen2-VL family.
        usual: Its own method, for prompts without adjacent videos.
        input_tokens: The prompt.
        mm_features: Its videos and images.

    Returns:
        Shape (3, tokens), int64; and the difference between the position after the last one and their number.
    """
    features = sorted(mm_features, key=lambda feature: feature.mm_position.offset)
    groups = _adjacent(features)
    if len(groups) == len(features):
        return usual(input_tokens, mm_features)
    parts: list[np.ndarray] = []
    done, position = 0, 0
    for group in groups:
        before = group[0].mm_position.offset - done
        parts.append(np.broadcast_to(np.arange(position, position + before), (3, before)))
        grids = np.concatenate(_grids(model, group), axis=1) + position + before
        parts.append(grids)
        position = int(grids.max()) + 1
        done += before + grids.shape[1]
    after = len(input_tokens) - done
    parts.append(np.broadcast_to(np.arange(position, position + after), (3, after)))
    return torch.from_numpy(np.concatenate(parts, axis=1)), position + after - len(input_tokens)


def _adjacent(features: Iterable[MultiModalFeatureSpec]) -> list[list[MultiModalFeatureSpec]]:
    groups: list[list[MultiModalFeatureSpec]] = []
    end = -1
    for feature in features:
        place = feature.mm_position
        if feature.modality == "video" and place.offset == end and place.is_embed is None:
            groups[-1].append(feature)
        else:
            groups.append([feature])
        end = place.offset + place.length if feature.modality == "video" else -1
    return groups


def _grids(model: Any, group: list[MultiModalFeatureSpec]) -> list[np.ndarray]:  # noqa: ANN401 - vLLM's model
    shapes = [shape for _, *shape, _ in model.iter_mm_grid_thw(group)]
    if len(group) == 1:
        [(_, *_, factor)] = model.iter_mm_grid_thw(group)
        grid = np.indices(shapes[0])
        grid[0] = grid[0] * factor
        return [grid.reshape(3, -1)]
    per_s = float(getattr(model.config.vision_config, "tokens_per_second", 1.0))
    times = [feature.data[SECONDS].data.item() for feature in group if feature.data and SECONDS in feature.data]
    timed = [time_index(each, per_s) for each in elapsed_s(times)] if times else []
    starts = timed if len(timed) == len(group) else range(len(group))
    return [_grid(*shape) + np.array([[start], [0], [0]]) for shape, start in zip(shapes, starts, strict=True)]


@lru_cache(64)
def _grid(times: int, height: int, width: int) -> np.ndarray:
    return np.indices((times, height, width)).reshape(3, -1)
