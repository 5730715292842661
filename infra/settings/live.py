"""Settings of live sessions, the section `[live]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.settings.base import SettingsSection


class LiveSettings(SettingsSection):
    """Live sessions of `reelabel serve`: what ends them, and how much a query sees."""

    max_sessions: Annotated[
        int,
        Field(ge=1, le=1024, description="Maximum sessions at once; further ones are refused with too_many_sessions."),
    ] = 16
    config_timeout_s: Annotated[
        float, Field(gt=0, le=600, description="Seconds after which a connection that begins no session is closed.")
    ] = 10
    idle_timeout_s: Annotated[
        float, Field(gt=0, le=86_400, description="Seconds without a message after which a session ends.")
    ] = 60
    total_s: Annotated[float, Field(gt=0, le=31_622_400, description="Maximum length of a session, in seconds.")] = (
        86_400
    )
    resume_s: Annotated[
        float, Field(ge=0, le=3600, description="Seconds that a session waits for a lost client to come back.")
    ] = 30
    max_seen_pixels: Annotated[
        int, Field(ge=3136, le=16_777_216, description="Frames are scaled down to at most this many pixels.")
    ] = 200_704
    max_window_frames: Annotated[
        int,
        Field(
            ge=4,
            le=65_536,
            description="Maximum frames and 2 s spans of audio that a query sees; all are held in memory.",
        ),
    ] = 2048
