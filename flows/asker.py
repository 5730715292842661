"""The inference backend of a run, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.engine_config import engine_config
from infra.errors import ConfigurationError
from tasks.model.ambiguity import load_tokenizer
from tasks.model.devices import assign_gpus, visible_gpus
from tasks.model.fleet import EngineFleet
from tasks.model.identity import read_model_card
from tasks.model.process import EngineProcess, engine_environment
from tasks.model.recovery import RecoveringEngine
from tasks.model.server.asker import ServerBackend
from tasks.model.server.card import read_served_model_card

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import Sampling
    from tasks.model.asker import InferenceBackend
    from tasks.model.identity import ModelCard


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
