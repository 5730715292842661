"""The server check of `reelabel doctor`: can it be reached, and does it answer a question about a video."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import ReelabelError
from infra.health import Check
from tasks.model.ambiguity import load_tokenizer
from tasks.model.identity import read_model_card
from tasks.model.server.asker import ServerBackend

if TYPE_CHECKING:
    from infra.settings import Settings


def check_server(settings: Settings) -> Check:
    """Ask the server about a probe video, as a run would."""
    name, revision = settings.model.name, settings.model.revision
    try:
        encode = load_tokenizer(read_model_card(name, revision=revision)) if name else None
        with ServerBackend(settings.server, encode=encode) as asker:
            return Check(name="server", ok=True, detail=asker.wait_ready().tuning)
    except ReelabelError as error:
        return Check(name="server", ok=False, detail=error.code, advice=error.message)
