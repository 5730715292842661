"""The backend `openai`: an OpenAI-compatible server, the section `[server]` of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from infra.doctor import Check
from reelabel.errors import ConfigurationError, ReelabelError
from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.model.backend import Backend, InferenceBackend
from tasks.model.identity import ModelCard, max_frame_pixels, read_model_card
from tasks.model.prompts.ambiguity import load_tokenizer
from tasks.model.server.backend import ServerBackend
from tasks.model.server.capabilities import read_served_model_card
from tasks.model.server.frame_transport import require_encoding
from tasks.model.server.live import ServerLiveModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings
    from tasks.live.model import LiveModel


class OpenAIBackend(Backend):
    """Has a server answer, which has loaded its model already."""

    name = "openai"
    shows_several = True
    writes_words = True

    def card(self, name: str | None, settings: Settings) -> ModelCard:
        model = settings.model
        if name not in {None, model.name}:
            raise ConfigurationError(
                f"Cannot use model {name}: the server at {settings.server.url} serves its own; leave out the name, "
                "or set model.backend to vllm."
            )
        if model.name is None:
            return read_served_model_card(settings.server)
        return read_model_card(model.name, revision=model.revision)

    def open(
        self,
        card: ModelCard,
        settings: Settings,
        *,
        media: MediaCounts = ONE_VIDEO,
    ) -> InferenceBackend:
        return ServerBackend(
            settings.server,
            encode=load_tokenizer(card),
            media=media,
            named=card.location if settings.model.name else None,
            template_args=settings.model.chat_template_args,
        )

    def open_live(
        self,
        card: ModelCard,
        settings: Settings,
        *,
        sessions: int,  # noqa: ARG002 - the server has its own limits
    ) -> tuple[InferenceBackend, LiveModel]:
        frame_px = max_frame_pixels(card, settings, num_frames=settings.sampling.num_frames)
        live = ServerLiveModel(
            settings.server,
            card,
            max_frame_px=frame_px,
            encode=load_tokenizer(card),
            template_args=settings.model.chat_template_args,
        )
        return self.open(card, settings), live

    def frames_as(self, card: ModelCard, settings: Settings) -> Literal["video", "images"]:  # noqa: ARG002 - a server may have its own model
        return "images" if settings.server.frames == "images" else "video"

    def check_media(self, media: MediaCounts, settings: Settings) -> None:
        require_encoding(settings.server.frames, media)

    def diagnose(self, settings: Settings) -> Iterator[Check]:
        try:
            with self.open(self.card(None, settings), settings) as server:
                yield Check(name="server", ok=True, detail=server.wait_ready().tuning)
        except ReelabelError as error:
            yield Check(name="server", ok=False, detail=error.code, advice=error.message)


OPENAI = OpenAIBackend()
