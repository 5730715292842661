"""The model of a run begins to load beside the services, if the run is bound to need it."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from flows.run.named_model import ENGINE, require_model
from infra.embedded import ServiceName, missing_services
from infra.embedded.home import Home
from infra.settings import load_settings
from tasks.domain import ONE_VIDEO

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from tasks.model.model_process import Startable

_KEEPING = frozenset({ServiceName.POSTGRES, ServiceName.S3})


def model_ahead(kind: str, parameters: dict[str, Any]) -> AbstractContextManager[None]:
    """Start the model of a run while the body starts services and runs the flow, which then finds it started.

    Args:
        kind: `classify`, `describe` or `backfill`.
        parameters: The flow's parameters.

    Raises:
        ConfigurationError: No model is named, which need not wait for services.
    """
    settings = load_settings()
    require_model(kind, parameters, settings)
    if not needs_model(kind, settings, force=bool(parameters.get("force"))):
        return nullcontext()
    from tasks.model.model_process import started_ahead  # noqa: PLC0415 - as below, only a run that starts one waits

    return started_ahead(partial(_open_engine if kind == "classify" else _open_encoder, parameters, settings))


def needs_model(kind: str, settings: Settings, *, force: bool) -> bool:
    """Return whether it is known before the services stand that a run has work for a model on this machine.

    It has if all jobs are asked again, or if the embedded services, which keep what earlier runs have left, have never
    been started. Otherwise, only its plan tells.
    """
    is_new = missing_services(settings, _KEEPING) == _KEEPING
    is_new = is_new and not any((settings.home / name).exists() for name in _KEEPING)
    if kind == "classify":
        return (is_new or force) and settings.model.backend == ENGINE and settings.run.executor == "local"
    return kind == "describe" and is_new


def _open_engine(parameters: dict[str, Any], settings: Settings) -> Startable | None:
    from flows.run.parameters import SpecOverrides  # noqa: PLC0415
    from flows.run.request import RunRequest  # noqa: PLC0415
    from flows.run.spec import engine_settings, resolve_spec  # noqa: PLC0415
    from tasks.model.backend import backend_of, open_backend  # noqa: PLC0415

    overrides = SpecOverrides.model_validate(parameters["overrides"])
    request = RunRequest(kind="classify", manifest=parameters["manifest"], overrides=overrides)
    card, spec = resolve_spec(request, settings)
    if spec.relevance:  # the encoder that it needs is loaded first: an engine takes what memory is left of a GPU
        return None
    Home(settings.home).require_private()  # before there is a log in it
    answering = engine_settings(settings, spec)
    return open_backend(backend_of(settings), card, answering, sampling=spec.sampling, media=ONE_VIDEO)


def _open_encoder(parameters: dict[str, Any], settings: Settings) -> Startable:
    from tasks.embedding.encoder import open_encoder, read_encoder_card  # noqa: PLC0415

    Home(settings.home).require_private()
    return open_encoder(settings, read_encoder_card(settings, parameters["options"].get("model")))
