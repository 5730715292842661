"""What answers a run's questions, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.engine_config import engine_config
from infra.errors import ConfigurationError
from tasks.model.ambiguity import read_encoder
from tasks.model.devices import share_gpus, visible_gpus
from tasks.model.fleet import EngineFleet
from tasks.model.identity import read_model_card
from tasks.model.process import EngineProcess, engine_environment
from tasks.model.recovery import RecoveringEngine
from tasks.model.server.asker import ServerAsker
from tasks.model.server.card import ask_for_card

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.domain import Sampling
    from tasks.model.asker import Asker
    from tasks.model.identity import ModelCard


def read_card(name: str | None, settings: Settings) -> ModelCard:
    """Look at the model that is to answer.

    Args:
        name: Folder or hub name; None is as set.
        settings: Where no name is set either, the tiny model, or what a server says of its own.

    Raises:
        ModelError: The model cannot be used.
        ConfigurationError: The server is not there, or refuses; or it is to answer by another model than it has.
    """
    model = settings.model
    if model.backend == "openai" and name not in {None, model.name}:
        raise ConfigurationError(
            f"The server at {settings.server.url} has its own model, not {name}; leave that out, "
            "or set model.backend to vllm."
        )
    name = name or model.name
    if model.backend == "openai" and name is None:
        return ask_for_card(settings.server)
    return read_model_card(name, revision=model.revision)


def check_asker(card: ModelCard, settings: Settings) -> None:
    """Find out early what would keep a run's questions from being answered.

    Raises:
        ConfigurationError: No vLLM is installed; or the server is not there, or refuses.
    """
    if settings.model.backend == "openai":
        with make_asker(card, settings) as server:
            server.wait_ready()
    else:
        engine_environment(engine_config(card, settings))


def make_asker(card: ModelCard, settings: Settings, *, sampling: Sampling | None = None) -> Asker:
    """Make what answers: one engine, several side by side, or a server; nothing is started yet.

    Args:
        card: The model.
        settings: How it is loaded.
        sampling: How videos are shown to it, for which it makes room; None is as set.

    Raises:
        ConfigurationError: There are fewer GPUs than the engines need; or no server is set.
    """
    model = settings.model
    if model.backend == "openai":
        return ServerAsker(settings.server, encode=read_encoder(card))
    shares = share_gpus(visible_gpus(), engines=model.engines, tensor_parallel_size=model.tensor_parallel_size)
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
