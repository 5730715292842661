"""The deployments of the service, and the application that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig

from flows.serve.ray.calls import RETRY_AFTER_S
from flows.serve.ray.decoder import Decoder
from flows.serve.ray.ingress import Ingress
from flows.serve.ray.models import Encoder, Engine
from infra.settings import load_settings
from infra.validation import first_fault
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from infra.settings import Settings

_MAX_REPLICAS = 8
# Requests in progress at a replica of the decoder for each of its processes: some wait for models meanwhile.
_REQUESTS_PER_PROCESS = 4
# Of a core, so that one of each deployment fits on two cores: the ingress, and a model that has no GPU to be fed.
_INGRESS_CPUS, _MODEL_CPUS = 0.2, 0.4
# A replica of the ingress refuses by itself, and says in its own words why, what has no place.
_REFUSED_PER_PLACE = 8


class Arguments(BaseModel):
    """Arguments of the application, as `serve run` takes them."""

    model_config = ConfigDict(extra="forbid")

    gpus: bool = Field(default=True, description="Whether the engine and the encoder take GPUs.")


def application(arguments: dict[str, str]) -> serve.Application:
    """Build the application; each of its replicas reads the settings of its own machine.

    Args:
        arguments: See `Arguments`.

    Raises:
        ConfigurationError: The arguments or settings cannot be used, or anybody could ask.
    """
    try:
        chosen = Arguments.model_validate(arguments)
    except ValidationError as error:
        where, value, clause = first_fault(error)
        raise ConfigurationError(f"Argument {where} {value}: {clause}.") from None
    settings = _checked(load_settings())
    load, model, processes = settings.serve.load, settings.model, settings.extract.processes or 1
    places = settings.serve.max_requests
    engine = encoder = None
    if "classify" in load:
        has_engine = chosen.gpus and model.backend != "openai"
        gpus = model.tensor_parallel_size * _count(model.engines) if has_engine else 0
        engine = _deploy(Engine, settings, target=places, cpus=_cpus(gpus), gpus=gpus).bind()
    if "analyze" in load:
        gpus = _count(settings.describe.engines) if chosen.gpus else 0
        encoder = _deploy(Encoder, settings, target=places, cpus=_cpus(gpus), gpus=gpus).bind()
    decoder = _deploy(Decoder, settings, target=processes * _REQUESTS_PER_PROCESS, cpus=processes).bind(engine, encoder)
    ingress = _deploy(
        serve.ingress()(Ingress), settings, target=places / 2, most=places * _REFUSED_PER_PLACE, cpus=_INGRESS_CPUS
    )
    return ingress.bind(decoder)


def _checked(settings: Settings) -> Settings:
    """Return the settings, if several machines can serve by them."""
    if settings.serve.token is None and not settings.serve.without_token:
        raise ConfigurationError(
            "Ray Serve's address is not set here, so others may reach it: set serve.token, or "
            "serve.without_token if a proxy in front of the service asks for logins."
        )
    if settings.store.uri is None or settings.database.url is None:
        raise ConfigurationError(
            "The machines of a cluster share a store and a database: set store.uri and database.url."
        )
    if {*settings.serve.load} <= {"live"}:
        raise ConfigurationError("Live sessions stay on one machine: name classify or analyze in serve.load.")
    return settings


def _count(engines: int | str) -> int:
    """Return how many engines a replica has; one if it takes what is there."""
    return engines if isinstance(engines, int) else 1


def _cpus(gpus: int) -> float:
    """Return the CPUs of a replica with so many GPUs."""
    return gpus or _MODEL_CPUS


def _deploy(
    deployed: type[Any],
    settings: Settings,
    *,
    target: float,
    most: int | None = None,
    cpus: float,
    gpus: int = 0,
) -> serve.Deployment:
    """Return a deployment that scales by its requests in progress, unless a file of `serve deploy` sets it otherwise.

    Args:
        deployed: Its class.
        settings: Limits of requests.
        target: Requests in progress for each replica.
        most: Most of them for each replica, and as many wait for each that asks; None is twice the target.
        cpus: CPUs of each.
        gpus: GPUs of each.
    """
    most = most or round(2 * target)
    return serve.deployment(
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=1, max_replicas=_MAX_REPLICAS, target_ongoing_requests=target
        ),
        max_ongoing_requests=most,
        max_queued_requests=most,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=RETRY_AFTER_S),
        graceful_shutdown_timeout_s=settings.serve.stop_timeout_s,
    )(deployed)
