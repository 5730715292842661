"""Detects what a server can do, by its answers about a probe video."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from infra.errors import ServerUnavailableError
from reelabel.errors import ConfigurationError, JobError, ReelabelError
from reelabel_engine.prompts import choice_tokens
from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.model.probe_video import probe_video
from tasks.model.server.answers import logprobs_request, read_logprobs
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

    from tasks.model.server.client import ServerClient


def completion_body(*, model: str, text: str, system_prompt: str | None, carried: EncodedFrames) -> dict[str, Any]:
    user = {"role": "user", "content": [*carried.parts, {"type": "text", "text": text}]}
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return {"model": model, "messages": [*system, user], "max_tokens": 1, "temperature": 0, **carried.options}


def probe_bodies(*, model: str, frames: str, exact: bool, encode: Callable[[str], list[int]]) -> list[dict[str, Any]]:
    """Build the requests about the probe video whose answers identify the server's model."""
    tokens = choice_tokens("abcd", scoring="letter", encode=encode)
    logprobs = logprobs_request(tokens, exact=exact)
    carried = encode_media(frames, [("video", probe_video())])
    return [completion_body(model=model, text=text, system_prompt=None, carried=carried) | logprobs for text in PROBES]


def detect_capabilities(
    client: ServerClient, *, model: str, frames: str, encode: Callable[[str], list[int]], media: MediaCounts = ONE_VIDEO
) -> tuple[str, bool]:
    """Find the best encoding of frames that a server takes, and whether it returns logprobs of requested tokens."""
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
            request = body | logprobs_request(tokens, exact=exact)
            try:
                shown = read_logprobs(client.complete(request), encode)
            except (JobError, ConfigurationError) as error:  # servers refuse unknown fields in different ways
                rejection = error
                continue
            except ServerUnavailableError as error:
                if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                rejection = error
                continue
            if not exact or shown.logprobs.keys() >= frozenset().union(*tokens):
                client.known_good = request
                return encoding, exact
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
