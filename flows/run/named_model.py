"""Whether a run names a model, which is known before anything else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.embedding.encoder import read_encoder_card

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.settings import Settings

ENGINE = "vllm"


def require_model(flow: str, parameters: Mapping[str, Any], settings: Settings) -> None:
    """Do nothing for flows other than classify and describe.

    Raises:
        ConfigurationError: Neither the parameters nor the settings name the model that the flow needs.
    """
    given = parameters.get("overrides" if flow == "classify" else "options") or {}
    if given.get("model"):
        return
    if flow == "classify" and settings.model.backend == ENGINE and not settings.model.name:
        from tasks.model.backend import backend_of  # noqa: PLC0415 - only to refuse

        backend_of(settings).card(None, settings)
    if flow == "describe" and not settings.describe.model:
        read_encoder_card(settings)
