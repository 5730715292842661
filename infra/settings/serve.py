"""The HTTP service and its live sessions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from infra.settings.types import Origin, SettingsSection


class ServeSettings(SettingsSection):
    """The HTTP service of `reelabel serve`."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; any but loopback requires a token."""
    port: int = Field(8020, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one."""
    token: SecretStr | None = Field(None, min_length=16)
    """Token that clients must send, as Authorization: Bearer TOKEN; if empty, none."""
    without_token: bool = False
    """Allow an address other than loopback without a token, such as behind a proxy with logins."""
    origins: tuple[Origin, ...] = ()
    """Web sites whose pages may send requests, such as ["https://example.com"]; if empty, none."""
    load: tuple[Literal["classify", "analyze", "live"], ...] = Field(("classify", "analyze", "live"), min_length=1)
    """What to load and answer: "classify", "analyze", "live", or several."""
    max_requests: int = Field(16, ge=1, le=1024)
    """Maximum requests in progress; further ones are refused at once with 429."""
    max_upload_mib: int = Field(512, ge=1, le=65_536)
    """Largest uploaded video, in MiB."""
    idle_timeout_s: float = Field(20, ge=1, le=3600)
    """Seconds without a byte of a request, or under 1 KiB/s of its fields, before its connection is closed."""
    stop_timeout_s: float = Field(30, ge=1, le=3600)
    """Maximum seconds, after SIGTERM, for the requests in progress to finish."""


class LiveSettings(SettingsSection):
    """Live sessions of `reelabel serve`."""

    max_sessions: int = Field(16, ge=1, le=1024)
    """Maximum sessions at once; further ones are refused with too_many_sessions."""
    resume_s: float = Field(30, ge=0, le=3600)
    """Seconds that a session waits for a lost client to reconnect."""
    max_window_frames: int = Field(2048, ge=4, le=65_536)
    """Maximum frames and 2 s spans of audio that a query sees; all are held in memory."""
