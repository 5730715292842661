"""The engine's configuration, from the settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flows.spec import max_frame_pixels
from tasks.model.questions import EngineConfig

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import Sampling
    from tasks.model.identity import ModelCard

# Rendering prompts takes a quarter of the cores, shared by all engines; each gets at most 8 processes.
_CORES_PER_RENDERER = 4
_MOST_RENDERERS = 8


def engine_config(
    card: ModelCard,
    settings: Settings,
    *,
    sampling: Sampling | None = None,
    devices: tuple[str, ...] = (),
    engines: int = 1,
) -> EngineConfig:
    """Return what an engine process needs to load a model.

    Args:
        card: The model.
        settings: How to load it.
        sampling: Sampling of the videos; None takes the settings.
        devices: Its GPUs, as in `CUDA_VISIBLE_DEVICES`; empty is all visible ones.
        engines: Number of engines that share this machine's cores.
    """
    model = settings.model
    num_frames = sampling.num_frames if sampling else settings.sampling.num_frames
    shown_px = sampling.max_pixels if sampling else max_frame_pixels(card, settings, num_frames=num_frames)
    return EngineConfig(
        model=card.location,
        revision=card.revision,
        dtype=model.dtype,
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        max_num_batched_tokens=model.max_num_batched_tokens,
        cpu_kv_cache_gib=model.cpu_kv_cache_gib,
        gpu_memory_utilization=model.gpu_memory_utilization,
        enforce_eager=model.enforce_eager,
        tensor_parallel_size=model.tensor_parallel_size,
        devices=devices,
        render_processes=max(1, min(_MOST_RENDERERS, (os.cpu_count() or 1) // _CORES_PER_RENDERER // engines)),
        num_frames=num_frames,
        max_pixels=shown_px,
        size_multiple_px=card.size_multiple_px,
    )
