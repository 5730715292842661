"""Inference backends: engines on this machine, or a server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flows.run.spec import max_frame_pixels
from reelabel.errors import ConfigurationError
from tasks.model.engine.devices import assign_gpus, visible_gpus
from tasks.model.engine.fleet import EngineFleet
from tasks.model.engine.process import EngineProcess, engine_environment
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.identity import read_model_card
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.protocol import EngineConfig
from tasks.model.server.backend import ServerBackend
from tasks.model.server.capabilities import read_served_model_card

if TYPE_CHECKING:
    from infra.settings import Settings
    from reelabel.sampling.options import Sampling
    from tasks.model.backend import InferenceBackend
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


def read_card(name: str | None, settings: Settings) -> ModelCard:
    """Read the card of the model that is to answer.

    Args:
        name: Folder or hub name; None takes the setting.
        settings: If they name no model either: the tiny model, or the one that the server serves.

    Raises:
        ModelError: The model cannot be used.
        ConfigurationError: The server is unreachable or rejects the request, or serves another model.
    """
    model = settings.model
    if model.backend == "openai" and name not in {None, model.name}:
        raise ConfigurationError(
            f"Cannot use model {name}: the server at {settings.server.url} serves its own; leave out the name, "
            "or set model.backend to vllm."
        )
    name = name or model.name
    if model.backend == "openai" and name is None:
        return read_served_model_card(settings.server)
    return read_model_card(name, revision=model.revision)


def check_backend(card: ModelCard, settings: Settings) -> None:
    """Check, before a run starts, that the backend can be used.

    Raises:
        ConfigurationError: vLLM is not installed, or the server is unreachable or rejects requests.
    """
    if settings.model.backend == "openai":
        with make_backend(card, settings) as server:
            server.wait_ready()
    else:
        engine_environment(engine_config(card, settings))


def make_backend(card: ModelCard, settings: Settings, *, sampling: Sampling | None = None) -> InferenceBackend:
    """Create the backend without starting it: one engine, a fleet of engines, or a server's client.

    Args:
        card: The model.
        settings: How to load it.
        sampling: Sampling of the videos, to size the engine's inputs; None takes the settings.

    Raises:
        ConfigurationError: There are fewer GPUs than the engines need, or no server is set.
    """
    model = settings.model
    if model.backend == "openai":
        return ServerBackend(settings.server, encode=load_tokenizer(card))
    shares = assign_gpus(visible_gpus(), engines=model.engines, tensor_parallel_size=model.tensor_parallel_size)
    engines = [
        RecoveringEngine(
            EngineProcess(
                engine_config(card, settings, sampling=sampling, devices=devices, engines=len(shares)),
                log_path=settings.home / "logs" / ("engine.log" if len(shares) == 1 else f"engine-{number}.log"),
                start_timeout_s=model.start_timeout_s,
                answer_timeout_s=model.answer_timeout_s,
            )
        )
        for number, devices in enumerate(shares)
    ]
    return engines[0] if len(engines) == 1 else EngineFleet(engines)
