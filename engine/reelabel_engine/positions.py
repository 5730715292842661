"""Positions of adjacent frame pairs and audio spans, numbered as one video.

Models of the Qwen2-VL family number a video's tokens by time, height and width, and begin anew after each video. Pairs
of frames that follow each other without a token between them are one video, whose time goes on. Qwen2.5-Omni numbers
the audio of a video by the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel_engine.live_items import SPAN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    import torch

    from reelabel_engine.vllm_api import ModelConfig, MultiModalFeatureSpec, MultiModalKwargsItem


SECONDS = "second_per_grid_ts"
# When each pair of a video begins; of a video whose pairs have no common rate.
STARTS = "pair_starts_s"
# Longer gaps count as this long: otherwise an hour without changes, or an eviction, would use up the positions.
MAX_STEP_S = 30.0
_GRID = "video_grid_thw"
_TIMED = ("video", "audio")
_ROUNDING = 1e-6  # seconds times a rate are whole numbers, up to rounding errors
_MOST_KNOWN = 16_384  # items whose shapes are remembered
# vLLM computes its table for four times as many positions as the model has, because of videos' times.
_TABLE_FACTOR = 4
_ENLARGED = {"default", "openpangu"}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the positions of an item depend on."""

    grid: npt.NDArray[np.int64]  # its positions if it began at 0; shape (3, tokens), int64
    factor: float  # positions between two successive times of the grid
    seconds: float | None  # when it begins, in seconds since the session began; None if its model has no times
    is_audio: bool  # all three positions of audio are its time


def continue_positions(worker: Any) -> None:  # noqa: ANN401 - vLLM's Worker
    """Have a worker's model number adjacent videos as one, if it begins anew after each video."""
    model = worker.model_runner.get_model()
    if hasattr(model, "iter_mm_grid_thw") or hasattr(model, "iter_mm_features"):
        model.get_mrope_input_positions = partial(mrope_positions, model, model.get_mrope_input_positions, known={})


def time_indexes(times_s: Sequence[float], per_s: float, *, has_audio: bool = False) -> npt.NDArray[np.int64]:
    """Return at which position of the prompt's time each item begins, with long gaps shortened.

    An item's time depends only on those before it, so that what has been prefilled keeps its positions.

    Args:
        times_s: When each begins, in seconds since the session began.
        per_s: Positions per second.
        has_audio: Leave room before the first item, as audio that began earlier follows it.

    Returns:
        Shape (items,), int64.
    """
    times = np.asarray(times_s, np.float64)
    first_s = min(float(times[0]), SPAN_S) if has_audio else 0.0
    cut_s = np.cumsum(np.maximum(0.0, np.diff(times, prepend=times[0]) - MAX_STEP_S))
    elapsed_s: npt.NDArray[np.float64] = np.maximum(0.0, first_s + times - times[0] - cut_s)
    return (elapsed_s * per_s + _ROUNDING).astype(np.int64)


def positions_per_s(config: Any) -> float:  # noqa: ANN401 - configuration of transformers
    """Return how many positions a second has, by the configuration of a model or of its thinker."""
    thinker = getattr(config, "thinker_config", config)
    per_s = getattr(thinker, "position_id_per_seconds", 1.0)
    return float(getattr(getattr(thinker, "vision_config", None), "tokens_per_second", per_s))


def last_time(video: MultiModalKwargsItem, config: Any) -> float:  # noqa: ANN401 - configuration of transformers
    """Return at which position of a prompt's time the last pair of a video begins; 0 if its positions have no times."""
    if STARTS in video:
        return float(time_indexes(video[STARTS].data.tolist(), positions_per_s(config)).max())
    if SECONDS not in video:
        return 0.0
    return float((video[_GRID].data[0] - 1) * video[SECONDS].data.item() * positions_per_s(config))


def table_length(config: ModelConfig) -> int:
    """Return the length of the rotary table, or less; see `get_rope` of vLLM."""
    text = config.hf_text_config
    rope: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind == "yarn":
        return int(rope["original_max_position_embeddings"] * _TABLE_FACTOR * rope["factor"])
    return int(text.max_position_embeddings) * (_TABLE_FACTOR if kind in _ENLARGED else 1)


def mrope_positions(
    model: Any,  # noqa: ANN401 - vLLM's model
    usual: Callable[[list[int], list[MultiModalFeatureSpec]], tuple[torch.Tensor, int]],
    input_tokens: list[int],
    mm_features: list[MultiModalFeatureSpec],
    *,
    known: dict[str, _Shape] | None = None,
) -> tuple[torch.Tensor, int]:
    """Number the positions of a prompt as `get_mrope_input_positions` does, which is `usual`, the model's own method.

    `known` has the shapes of items of earlier prompts by identifier; those of this one are added.
    """
    import torch  # noqa: PLC0415 - takes seconds, and is the engine's

    features = sorted(chain.from_iterable(map(_pairs, mm_features)), key=lambda feature: feature.mm_position.offset)
    positions = number_adjacent(model, input_tokens, features, known=known)
    if positions is None:
        return usual(input_tokens, mm_features)
    return torch.from_numpy(positions), int(positions.max()) + 1 - len(input_tokens)


def number_adjacent(
    model: Any,  # noqa: ANN401 - vLLM's model
    input_tokens: Sequence[int],
    features: Sequence[MultiModalFeatureSpec],
    *,
    known: dict[str, _Shape] | None = None,
) -> npt.NDArray[np.int64] | None:
    """Number the positions of a prompt with adjacent videos, or with audio, shape (3, tokens); None of any other."""
    groups = _adjacent(features)
    marks_audio = getattr(model.config, "audio_start_token_id", None)
    has_audio = bool(features) and input_tokens[features[0].mm_position.offset - 1] == marks_audio
    if len(groups) == len(features) and not has_audio:
        return None
    parts: list[np.ndarray] = []
    done, position = 0, 0
    for group in groups:
        before = group[0].mm_position.offset - done
        parts.append(np.broadcast_to(np.arange(position, position + before), (3, before)))
        grids = _grids(model, _shapes(model, group, known), has_audio=has_audio) + position + before
        parts.append(grids)
        position = int(grids.max()) + 1
        done += before + grids.shape[1]
    after = len(input_tokens) - done
    parts.append(np.broadcast_to(np.arange(position, position + after), (3, after)))
    return np.concatenate(parts, axis=1)


def _pairs(feature: MultiModalFeatureSpec) -> list[MultiModalFeatureSpec]:
    if not feature.data or STARTS not in feature.data:
        return [feature]
    starts_s, grid, placeholder = feature.data[STARTS], feature.data[_GRID], feature.mm_position
    tokens = placeholder.length // len(starts_s.data)
    alone = replace(grid, data=grid.data.new_tensor([1, *grid.data[1:]]))
    return [
        replace(
            feature,
            data=type(feature.data)({_GRID: alone, SECONDS: replace(starts_s, data=start_s)}),
            identifier=f"{feature.identifier} {number}",
            mm_position=replace(placeholder, offset=placeholder.offset + number * tokens, length=tokens, is_embed=None),
        )
        for number, start_s in enumerate(starts_s.data)
    ]


def _adjacent(features: Iterable[MultiModalFeatureSpec]) -> list[list[MultiModalFeatureSpec]]:
    groups: list[list[MultiModalFeatureSpec]] = []
    end = -1
    for feature in features:
        placeholder = feature.mm_position
        if feature.modality in _TIMED and placeholder.offset == end and placeholder.is_embed is None:
            groups[-1].append(feature)
        else:
            groups.append([feature])
        end = placeholder.offset + placeholder.length if feature.modality in _TIMED else -1
    return groups


def _grids(model: Any, shapes: Sequence[_Shape], *, has_audio: bool) -> npt.NDArray[np.int64]:  # noqa: ANN401 - vLLM's model
    """Number the positions of adjacent items from 0; shape (3, tokens), int64."""
    if len(shapes) == 1 and not has_audio:
        alone: npt.NDArray[np.float64] = shapes[0].grid * np.array([[shapes[0].factor], [1], [1]])
        return alone.astype(np.int64)
    times = [shape.seconds for shape in shapes if shape.seconds is not None]
    starts = np.arange(len(shapes))
    if len(times) == len(shapes):
        starts = time_indexes(times, positions_per_s(model.config), has_audio=has_audio)
    lengths = [shape.grid.shape[1] for shape in shapes]
    grids: npt.NDArray[np.int64] = np.concatenate([shape.grid for shape in shapes], axis=1)
    later = np.repeat(starts, lengths)
    grids[0] += later
    if any(shape.is_audio for shape in shapes):
        grids[1:] += later * np.repeat([shape.is_audio for shape in shapes], lengths)
    return grids


def _shapes(
    model: Any,  # noqa: ANN401 - vLLM's model
    group: list[MultiModalFeatureSpec],
    known: dict[str, _Shape] | None,
) -> list[_Shape]:
    """Return the shapes of features; reading them from their tensors takes longer than all else about positions."""
    if known is None:
        return list(_read_shapes(model, group))
    if len(known) > _MOST_KNOWN:
        known.clear()
    new = [feature for feature in group if feature.identifier not in known]
    known |= zip((feature.identifier for feature in new), _read_shapes(model, new), strict=True)
    return [known[feature.identifier] for feature in group]


def _read_shapes(model: Any, features: list[MultiModalFeatureSpec]) -> Iterator[_Shape]:  # noqa: ANN401 - vLLM's model
    for feature, (grid, factor) in zip(features, _grids_alone(model, features), strict=True):
        has_seconds = feature.data and SECONDS in feature.data
        seconds = feature.data[SECONDS].data.item() if has_seconds else None
        yield _Shape(grid, factor, seconds, feature.modality == "audio")


def _grids_alone(
    model: Any,  # noqa: ANN401 - vLLM's model
    group: list[MultiModalFeatureSpec],
) -> Iterator[tuple[npt.NDArray[np.int64], float]]:
    """Yield the grid of each feature as if it began at 0, and the positions between two successive times of it."""
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
def _grid(times: int, height: int, width: int) -> npt.NDArray[np.int64]:
    return np.indices((times, height, width)).reshape(3, -1)
