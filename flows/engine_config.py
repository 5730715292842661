"""How the engine is loaded, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.model.questions import EngineConfig

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.model.identity import ModelCard


def engine_config(card: ModelCard, settings: Settings) -> EngineConfig:
    """Put together what the engine's process needs to load a model."""
    model = settings.model
    return EngineConfig(
        model=card.location,
        revision=card.revision,
        dtype=model.dtype,
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        cpu_kv_cache_gib=model.cpu_kv_cache_gib,
        gpu_memory_utilization=model.gpu_memory_utilization,
    )
