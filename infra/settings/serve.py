"""Settings of the HTTP service, the section `[serve]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from infra.settings.base import SettingsSection

Origin = Annotated[str, Field(pattern=r"^https?://[^/@]+$")]


class ServeSettings(SettingsSection):
    """The HTTP service of `reelabel serve`."""

    host: Annotated[
        str, Field(min_length=1, description="Address to listen on; any but loopback requires a token.")
    ] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")] = 8020
    token: Annotated[
        SecretStr | None,
        Field(
            min_length=16, description="Token that clients must send, as Authorization: Bearer TOKEN; if empty, none."
        ),
    ] = None
    without_token: Annotated[
        bool,
        Field(description="Allow an address other than loopback without a token, such as behind a proxy with logins."),
    ] = False
    origins: Annotated[
        tuple[Origin, ...],
        Field(description='Web sites whose pages may send requests, such as ["https://example.com"]; if empty, none.'),
    ] = ()
    load: Annotated[
        tuple[Literal["classify", "analyze", "live"], ...],
        Field(min_length=1, description='What to load and answer: "classify", "analyze", "live", or several.'),
    ] = ("classify", "analyze", "live")
    max_requests: Annotated[
        int,
        Field(ge=1, le=1024, description="Maximum requests in progress; further ones are refused at once with 429."),
    ] = 16
    max_upload_mib: Annotated[int, Field(ge=1, le=65_536, description="Largest uploaded video, in MiB.")] = 512
    idle_timeout_s: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="Seconds without a byte of a request, or with less than 1 KiB of its fields per second, "
            "before its connection is closed.",
        ),
    ] = 20
    request_timeout_s: Annotated[
        float,
        Field(ge=1, le=86_400, description="Maximum seconds to work on a request, which is then refused with 504."),
    ] = 600
    stop_timeout_s: Annotated[
        float, Field(ge=1, le=3600, description="Maximum seconds, after SIGTERM, for the requests in progress to end.")
    ] = 30
