"""Positions of adjacent pairs of frames and spans of audio: those of the one video that they are.

Models of the Qwen2-VL family number a video's tokens by time, height and width, and begin anew after each video. Pairs
of frames that follow each other without a token between them are one video, whose time goes on. Qwen2.5-Omni numbers
the audio of a video by the same time.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks.live.items import SPAN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vllm.multimodal.inputs import MultiModalFeatureSpec

SECONDS = "second_per_grid_ts"
# A longer gap counts as this long: where nothing changed for an hour, or frames were evicted, positions would run out.
MAX_STEP_S = 30.0
_TIMED = ("video", "audio")
_ROUNDING = 1e-6  # seconds times a rate are whole numbers but for their last bits


def continue_positions(worker: Any) -> None:  # noqa: ANN401 - vLLM's Worker
    """Have a worker's model number adjacent videos as one, if it begins anew after each video."""
    model = worker.model_runner.get_model()
    if hasattr(model, "iter_mm_grid_thw") or hasattr(model, "iter_mm_features"):
        model.get_mrope_input_positions = partial(merged_positions, model, model.get_mrope_input_positions)


def elapsed_s(times_s: Sequence[float], *, has_audio: bool = False) -> list[float]:
    """Return where each item begins on the time of the prompt, with long gaps shortened.

    The time of an item depends on those before it alone: what the model has read must not move.

    Args:
        times_s: When each begins, in seconds since the session began.
        has_audio: Leave room before the first item, as audio that began earlier follows it.
    """
    first_s, cut_s = min(times_s[0], SPAN_S) if has_audio else 0.0, 0.0
    elapsed: list[float] = []
    for before, now in zip([times_s[0], *times_s], times_s, strict=False):
        cut_s += max(0.0, now - before - MAX_STEP_S)
        elapsed.append(max(0.0, first_s + now - times_s[0] - cut_s))
    return elapsed


def positions_per_s(config: Any) -> float:  # noqa: ANN401 - configuration of transformers
    """Return how many positions a second has, by the configuration of a model or of its thinker."""
    vision = getattr(getattr(config, "thinker_config", config), "vision_config", None)
    return float(getattr(vision, "tokens_per_second", 1.0))


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
        model: Of the Qwen2-VL family, or Qwen2.5-Omni's thinker.
        usual: Its own method, for prompts without adjacent videos.
        input_tokens: The prompt.
        mm_features: Its videos, images and audios.

    Returns:
        Shape (3, tokens), int64; and the difference between the position after the last one and their number.
    """
    features = sorted(mm_features, key=lambda feature: feature.mm_position.offset)
    groups = _adjacent(features)
    marks_audio = getattr(model.config, "audio_start_token_id", None)
    has_audio = bool(features) and input_tokens[features[0].mm_position.offset - 1] == marks_audio
    if len(groups) == len(features) and not has_audio:
        return usual(input_tokens, mm_features)
    parts: list[np.ndarray] = []
    done, position = 0, 0
    for group in groups:
        before = group[0].mm_position.offset - done
        parts.append(np.broadcast_to(np.arange(position, position + before), (3, before)))
        grids = np.concatenate(_grids(model, group, has_audio=has_audio), axis=1) + position + before
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
        if feature.modality in _TIMED and place.offset == end and place.is_embed is None:
            groups[-1].append(feature)
        else:
            groups.append([feature])
        end = place.offset + place.length if feature.modality in _TIMED else -1
    return groups


def _grids(
    model: Any,  # noqa: ANN401 - vLLM's model
    group: list[MultiModalFeatureSpec],
    *,
    has_audio: bool,
) -> list[np.ndarray]:
    grids, factors = zip(*_grids_alone(model, group), strict=True)
    if len(group) == 1 and not has_audio:
        return [(grids[0] * np.array([[factors[0]], [1], [1]])).astype(np.int64)]
    times = [feature.data[SECONDS].data.item() for feature in group if feature.data and SECONDS in feature.data]
    starts: Sequence[int] = range(len(group))
    if len(times) == len(group):
        per_s = positions_per_s(model.config)
        starts = [time_index(each, per_s) for each in elapsed_s(times, has_audio=has_audio)]
    return [
        grid + (start if feature.modality == "audio" else np.array([[start], [0], [0]]))
        for feature, grid, start in zip(group, grids, starts, strict=True)
    ]


def _grids_alone(
    model: Any,  # noqa: ANN401 - vLLM's model
    group: list[MultiModalFeatureSpec],
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield the grid of each feature as if it began at 0, and by how much each of its times is later than the last."""
    if hasattr(model, "iter_mm_grid_thw"):
        for _, *shape, factor in model.iter_mm_grid_thw(group):
            yield _grid(*shape), factor
        return
    for feature, (_, kind, data) in zip(group, model.iter_mm_features(group), strict=True):
        if kind == "audio":
            yield np.broadcast_to(np.arange(feature.mm_position.length), (3, feature.mm_position.length)), 1
        else:
            yield _grid(data["grid_t"], data["grid_h"], data["grid_w"]), data["t_factor"]


@lru_cache(64)
def _grid(times: int, height: int, width: int) -> np.ndarray:
    return np.indices((times, height, width)).reshape(3, -1)
