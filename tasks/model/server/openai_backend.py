"""The backend `openai`: an OpenAI-compatible server, the section `[server]` of the settings."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from infra.doctor import Check
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel_engine.errors import ModelError
from tasks.domain import ONE_VIDEO, MediaCounts, ModelIdentity
from tasks.model.backend import Backend, InferenceBackend
from tasks.model.identity import ModelInfo, max_frame_pixels, read_model_info
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.server.backend import ServerBackend
from tasks.model.server.client import ServerClient
from tasks.model.server.frame_transport import require_encoding
from tasks.model.server.live import ServerLiveModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import ServerSettings, Settings
    from tasks.live.model import LiveModel
    from tasks.model.server.answers import ServedModel


_LOG = logging.getLogger(__name__)
# Qwen's; any value would do, since the server's processor scales frames to what its model takes.
_SIZE_MULTIPLE_PX = 28


class OpenAIBackend(Backend):
    """Answers by a server that has already loaded its model."""

    name = "openai"
    shows_several = True
    writes_words = True

    def model_info(self, name: str | None, settings: Settings) -> ModelInfo:
        model = settings.model
        if name not in {None, model.name}:
            raise ConfigurationError(
                f"Cannot use model {name}: the server at {settings.server.url} serves its own; leave out the name, "
                "or set model.backend to vllm."
            )
        if model.name is None:
            return read_served_model_info(settings.server)
        model_info = read_model_info(model.name, revision=model.revision)
        if model_info.adapter:
            raise ConfigurationError(
                f"Whether a server adds the LoRA adapter {model_info.identity.name} cannot be checked; leave out "
                "model.name, and set server.model to the name under which it serves the adapter."
            )
        return model_info

    def open(self, model_info: ModelInfo, settings: Settings, *, media: MediaCounts = ONE_VIDEO) -> InferenceBackend:
        return ServerBackend(
            settings.server,
            encode=load_tokenizer(model_info),
            media=media,
            named=model_info.location if settings.model.name else None,
            template_args=settings.model.chat_template_args,
        )

    def open_live(
        self,
        model_info: ModelInfo,
        settings: Settings,
        *,
        sessions: int,  # noqa: ARG002 - the server has its own limits
    ) -> tuple[InferenceBackend, LiveModel]:
        frame_px = max_frame_pixels(model_info, settings, num_frames=settings.sampling.num_frames)
        live = ServerLiveModel(
            settings.server,
            model_info,
            max_frame_px=frame_px,
            encode=load_tokenizer(model_info),
            template_args=settings.model.chat_template_args,
        )
        return self.open(model_info, settings), live

    def frames_as(self, model_info: ModelInfo, settings: Settings) -> Literal["video", "images"]:  # noqa: ARG002 - a server may have its own model
        return "images" if settings.server.frames == "images" else "video"

    def check_media(self, media: MediaCounts, settings: Settings) -> None:
        require_encoding(settings.server.frames, media)

    def diagnose(self, settings: Settings) -> Iterator[Check]:
        try:
            with self.open(self.model_info(None, settings), settings) as server:
                yield Check(name="server", ok=True, detail=server.wait_ready().tuning)
        except ReelabelError as error:
            yield Check(name="server", ok=False, detail=error.code, advice=error.message)


def read_served_model_info(settings: ServerSettings) -> ModelInfo:
    """Identify the model of a server.

    The identity includes the server's URL, because the weights behind the name may change at any time. Frames get the
    size of the model that vLLM says it loaded, if that can be read here too; otherwise, a warning is logged.

    Raises:
        ConfigurationError: The server cannot be reached, rejects requests, or serves several models and
            server.model is not set.
    """
    with contextlib.closing(ServerClient(settings)) as client:
        model = client.find_model()
        identity = ModelIdentity(name=model.id, served_at=client.url)
    found = _read_loaded_model(model)
    if found is None:
        return ModelInfo(identity=identity, location=model.id, size_multiple_px=_SIZE_MULTIPLE_PX, max_pixels=None)
    return replace(found, identity=identity, location=model.id, revision=None, adapter=None)


def _read_loaded_model(model: ServedModel) -> ModelInfo | None:
    """Read the facts of the model that a server loaded; log a warning and return None if its files are not here."""
    reason = "The server does not say what it loaded."
    if model.root is not None:
        try:
            return read_model_info(model.root)
        except ModelError as error:
            reason = error.message
    _LOG.warning(
        "Frames may not have the size of the server's model %s, so that labels differ from those of Reelabel's own "
        "engine; set model.name to its folder or hub name. %s",
        model.id,
        reason,
    )
    return None


OPENAI = OpenAIBackend()
