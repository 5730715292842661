"""A model of which nothing is known but a server's name for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tasks.domain import ModelIdentity
from tasks.model.identity import ModelCard
from tasks.model.server.client import ServerClient

if TYPE_CHECKING:
    from infra.server_settings import ServerSettings

# Qwen's, and so no worse than any: the server's own processor scales frames to what its model takes.
_SIZE_MULTIPLE_PX = 28


def ask_for_card(settings: ServerSettings) -> ModelCard:
    """Ask a server for its model.

    Its weights may be replaced behind the name at any time, so that the identity says whose word it is.

    Raises:
        ConfigurationError: The server is not there, refuses, or serves several models and none is chosen.
    """
    with contextlib.closing(ServerClient(settings)) as client:
        name = client.find_model().id
        return ModelCard(
            identity=ModelIdentity(name=name, served_at=client.url),
            location=name,
            size_multiple_px=_SIZE_MULTIPLE_PX,
            max_pixels=None,
        )
