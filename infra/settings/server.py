"""Settings of an OpenAI-compatible server, the section `[server]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from infra.settings.base import SettingsSection


class ServerSettings(SettingsSection):
    """The OpenAI-compatible server that is used if `model.backend` is openai."""

    url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^@]+$",
            description="The URL of the server's API, such as http://gpu-1:8000/v1, without a key.",
        ),
    ] = None
    api_key: Annotated[SecretStr | None, Field(description="API key, if the server requires one.")] = None
    model: Annotated[
        str | None, Field(description="Name under which the server offers the model; defaults to its only one.")
    ] = None
    frames: Annotated[
        Literal["auto", "frame_file", "png", "images"],
        Field(
            description="How frames are sent: frame_file (requires Reelabel's plugin on the server) and png (requires "
            "vLLM with --trust-request-mm-kwargs) keep exact pixels and times; auto uses the first of them that works. "
            "images sends no times, and leads to different labels."
        ),
    ] = "auto"
    hears: Annotated[bool, Field(description="The server accepts audio, so live sessions send it theirs.")] = False
    speaks: Annotated[
        bool, Field(description="The server can answer in speech, which live sessions pass on to their clients.")
    ] = False
    voice: Annotated[
        str,
        Field(
            min_length=1, max_length=100, description="The server's voice, unless a session asks for another speaker."
        ),
    ] = "alloy"
    ca_file: Annotated[
        Annotated[Path, AfterValidator(Path.absolute)] | None,
        Field(description="CA certificate of a server whose own is not signed by a public authority."),
    ] = None
    concurrency: Annotated[int, Field(ge=1, le=1024, description="Concurrent requests, one video each.")] = 32
    timeout_s: Annotated[float, Field(ge=1, le=7200, description="Maximum seconds for one answer.")] = 300
    connect_timeout_s: Annotated[float, Field(gt=0, le=300, description="Seconds to wait for a connection.")] = 10
    max_attempts: Annotated[
        int, Field(ge=1, le=20, description="Attempts per request, with growing pauses, before giving up.")
    ] = 5
    probe_tolerance: Annotated[
        float,
        Field(
            gt=0,
            le=100,
            description="Mean difference of logprobs, in nats, up to which answers to the same question are those of "
            "one model; a run ends if the server's differ more. Raise it for a server whose answers vary.",
        ),
    ] = 0.5
    gpus: Annotated[
        int, Field(ge=0, le=4096, description="GPUs that the server uses, for figures per GPU-hour; 0 counts as one.")
    ] = 0
