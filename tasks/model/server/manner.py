"""How one server wants to be asked: found out by asking it about a grey video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.errors import ConfigurationError, JobError
from tasks.model.choices import choice_tokens
from tasks.model.grey import grey_video
from tasks.model.server.frames import TIMED_WAYS, WAYS
from tasks.model.server.scoring import ask_for_logprobs, read_logprobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.model.server.client import ServerClient
    from tasks.model.server.frames import Carried


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a server is asked.

    Attributes:
        frames: How frames travel; see `tasks.model.server.frames`.
        exact: Whether it shows the logprobs of the choices' own tokens.
    """

    frames: str
    exact: bool


def chat_body(*, model: str, text: str, system_prompt: str | None, carried: Carried) -> dict[str, Any]:
    """Make a request for one token, the video before the question."""
    user = {"role": "user", "content": [*carried.parts, {"type": "text", "text": text}]}
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return {"model": model, "messages": [*system, user], "max_tokens": 1, "temperature": 0, **carried.options}


def find_manner(
    client: ServerClient,
    *,
    model: str,
    frames: str,
    encode: Callable[[str], list[int]],
) -> Manner:
    """Try how the server can be asked, the best way first.

    Args:
        client: Of the server.
        model: The name by which it serves the model.
        frames: How frames are to travel; `auto` tries every way that carries their times.
        encode: The tokenizer, without special tokens.

    Raises:
        ConfigurationError: The server takes frames in none of these ways, or shows no logprobs.
    """
    tokens = choice_tokens(("yes", "no"), scoring="letter", encode=encode)
    refusal = ""
    for way in TIMED_WAYS if frames == "auto" else (frames,):
        body = chat_body(model=model, text="A or B?", system_prompt=None, carried=WAYS[way](grey_video()))
        for exact in (True, False):
            try:
                shown = read_logprobs(client.complete(body | ask_for_logprobs(tokens, exact=exact)), encode)
            except JobError as error:
                refusal = error.message
                continue
            if not exact or shown.logprobs.keys() >= frozenset().union(*tokens):
                return Manner(frames=way, exact=exact)
    raise ConfigurationError(
        f"The server at {client.url} takes no video (server.frames is {frames}): {refusal} "
        "Start vLLM with --trust-request-mm-kwargs, or with Reelabel's plugin; docs/server.md says how."
    )
