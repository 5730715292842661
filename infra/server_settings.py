"""Settings of an OpenAI-compatible server, the section `[server]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from infra.section import Section


class ServerSettings(Section):
    """The OpenAI-compatible server that answers where `model.engine` is openai."""

    url: Annotated[
        str | None,
        Field(pattern=r"^https?://[^@]+$", description="Its API, such as http://gpu-1:8000/v1; no key in it."),
    ] = None
    api_key: Annotated[SecretStr | None, Field(description="Its key, if it asks for one.")] = None
    model: Annotated[
        str | None, Field(description="The name by which it serves the model; empty takes the only one.")
    ] = None
    frames: Annotated[
        Literal["auto", "frame_file", "png", "images"],
        Field(
            description="How frames travel: frame_file (a server with Reelabel's plugin) and png (vLLM with "
            "--trust-request-mm-kwargs) carry exact pixels and true times, and auto takes the first that works; "
            "images tells no times and gives other labels."
        ),
    ] = "auto"
    concurrency: Annotated[int, Field(ge=1, le=1024, description="Videos asked about at once.")] = 32
    timeout_s: Annotated[float, Field(ge=1, le=7200, description="Seconds one answer may take.")] = 300
    connect_timeout_s: Annotated[float, Field(gt=0, le=300, description="Seconds to wait for a connection.")] = 10
    max_attempts: Annotated[
        int, Field(ge=1, le=20, description="Tries of one request, pausing longer each time, before giving up.")
    ] = 5
    gpus: Annotated[
        int, Field(ge=0, le=4096, description="GPUs behind it, for what a GPU-hour gave; 0 counts the server as one.")
    ] = 0
