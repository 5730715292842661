"""The model card of a model that is known only by its name on a server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tasks.domain import ModelIdentity
from tasks.model.identity import ModelCard
from tasks.model.server.client import ServerClient

if TYPE_CHECKING:
    from infra.server_settings import ServerSettings

# Qwen's; any value would do, since the server's processor scales frames to what its model takes.
_SIZE_MULTIPLE_PX = 28


def read_served_model_card(settings: ServerSettings) -> ModelCard:
    """Ask a server for its model.

    The identity includes the server's URL, because the weights behind the name may change at any time.

    Raises:
        ConfigurationError: The server cannot be reached, rejects requests, or serves several models and
            server.model is not set.
    """
    with contextlib.closing(ServerClient(settings)) as client:
        name = client.find_model().id
        return ModelCard(
            identity=ModelIdentity(name=name, served_at=client.url),
            location=name,
            size_multiple_px=_SIZE_MULTIPLE_PX,
            max_pixels=None,
        )
