"""What a server can do, learned from its answers about a probe video."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from infra.errors import ServerUnavailableError
from reelabel.errors import ConfigurationError, JobError, ReelabelError
from reelabel_engine.errors import ModelError
from reelabel_engine.prompts import choice_tokens
from tasks.domain import ONE_VIDEO, MediaCounts, ModelIdentity
from tasks.model.identity import ModelCard, read_model_card
from tasks.model.probe_video import probe_video
from tasks.model.server.answers import logprobs_request, read_logprobs
from tasks.model.server.client import ServerClient
from tasks.model.server.frame_transport import (
    EncodedFrames,
    encode_as_images,
    encode_media,
    encodings_of,
    require_encoding,
)
from tasks.model.server.model_watch import PROBES

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.settings import ServerSettings
    from tasks.model.server.answers import ServedModel


_LOG = logging.getLogger(__name__)

# Qwen's; any value would do, since the server's processor scales frames to what its model takes.
_SIZE_MULTIPLE_PX = 28


def read_served_model_card(settings: ServerSettings) -> ModelCard:
    """Ask a server for its model.

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
        return ModelCard(identity=identity, location=model.id, size_multiple_px=_SIZE_MULTIPLE_PX, max_pixels=None)
    return replace(found, identity=identity, location=model.id, revision=None)


def _read_loaded_model(model: ServedModel) -> ModelCard | None:
    """Read the card of the model that a server loaded; log a warning and return None if it is not at hand."""
    reason = "The server does not say what it loaded."
    if model.root is not None:
        try:
            return read_model_card(model.root)
        except ModelError as error:
            reason = error.message
    _LOG.warning(
        "Frames may not have the size of the server's model %s, so that labels differ from those of Reelabel's own "
        "engine; set model.name to its folder or hub name. %s",
        model.id,
        reason,
    )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """What a server supports."""

    frames: str  # encoding of frames; see `tasks.model.server.frame_transport`
    exact: bool  # whether it returns logprobs of requested tokens, not only the top ones


def completion_body(*, model: str, text: str, system_prompt: str | None, carried: EncodedFrames) -> dict[str, Any]:
    user = {"role": "user", "content": [*carried.parts, {"type": "text", "text": text}]}
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return {"model": model, "messages": [*system, user], "max_tokens": 1, "temperature": 0, **carried.options}


def probe_bodies(
    capabilities: ServerCapabilities, *, model: str, encode: Callable[[str], list[int]]
) -> list[dict[str, Any]]:
    """Build the requests by whose answers the server's model is known again, about the probe video."""
    tokens = choice_tokens("abcd", scoring="letter", encode=encode)
    logprobs = logprobs_request(tokens, exact=capabilities.exact)
    carried = encode_media(capabilities.frames, [("video", probe_video())])
    return [completion_body(model=model, text=text, system_prompt=None, carried=carried) | logprobs for text in PROBES]


def detect_capabilities(
    client: ServerClient,
    *,
    model: str,
    frames: str,
    encode: Callable[[str], list[int]],
    media: MediaCounts = ONE_VIDEO,
) -> ServerCapabilities:
    """Find the best encoding and kind of logprobs that the server supports, by trying them in order."""
    require_encoding(frames, media)
    encodings = encodings_of(media)
    tokens = choice_tokens(("yes", "no"), scoring="letter", encode=encode)
    rejection: ReelabelError | None = None
    for encoding in encodings if frames == "auto" else (frames,):
        videos = encode_media(encoding, [("video", probe_video())] * media.videos)
        images = encode_as_images(probe_video()).parts[:1] * media.images
        carried = replace(videos, parts=[*videos.parts, *images])
        body = completion_body(model=model, text="A or B?", system_prompt=None, carried=carried)
        for exact in (True, False):
            asked = body | logprobs_request(tokens, exact=exact)
            try:
                shown = read_logprobs(client.complete(asked), encode)
            except (
                JobError,
                ConfigurationError,
            ) as error:  # servers have their own ways to refuse what they do not know
                rejection = error
                continue
            except ServerUnavailableError as error:
                if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                rejection = error
                continue
            if not exact or shown.logprobs.keys() >= frozenset().union(*tokens):
                client.known_good = asked
                return ServerCapabilities(frames=encoding, exact=exact)
    if rejection is not None and not isinstance(rejection, JobError):
        raise rejection
    if media.are_several:
        raise ConfigurationError(
            f"The server at {client.url} does not accept {media} in a question: {rejection} Start vLLM with Reelabel's "
            "plugin, and without a lower --limit-mm-per-prompt; see docs/models.md."
        )
    raise ConfigurationError(
        f"The server at {client.url} does not accept video (server.frames is {frames}): {rejection} "
        "Start vLLM with --trust-request-mm-kwargs, or with Reelabel's plugin; see docs/models.md."
    )
